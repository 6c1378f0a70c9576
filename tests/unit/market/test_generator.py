"""Generated markets look like the recorded ones that their parameters come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import combinations, pairwise

import pytest

from benchmarks.generated import build_job
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState
from costopt.domain.market import CapacityType, Pool
from costopt.market.generator import generate_market, generator_parameters
from costopt.market.history_file import UNLIMITED_NODES
from costopt.market.statistics import history_statistics
from tests.support.errors import has_code
from tests.support.market_fixtures import ON_DEMAND, SPOT, T0

DAYS = 60


def pools(regions: int, zones: int) -> dict[Pool, float]:
    return {
        Pool("aws", f"r{r}", f"r{r}{'abc'[z]}", "p3.2xlarge", CapacityType.SPOT): 1.0
        for r in range(regions)
        for z in range(zones)
    }


@pytest.fixture(scope="module")
def typical() -> MarketHistory:
    return generate_market(pools(6, 2), hours=DAYS * 24, seed=3, tick_s=600.0)


@pytest.mark.parametrize(
    ("profile", "low", "high"),
    [("calm", 0.80, 0.97), ("typical", 0.60, 0.85), ("harsh", 0.33, 0.62), ("scarce", 0.08, 0.32)],
)
def test_a_profile_has_the_availability_that_was_recorded(
    profile: str, low: float, high: float
) -> None:
    history = generate_market(pools(8, 1), hours=45 * 24, seed=1, profile=profile, tick_s=600.0)
    shares = [s.availability.value for s in history_statistics(history).values() if s.availability]
    assert low < sum(shares) / len(shares) < high


def test_the_longer_a_pool_has_been_up_the_longer_it_stays(typical: MarketHistory) -> None:
    lives_h = [
        (b.starts_at - a.starts_at).total_seconds() / 3600
        for recorded in typical.pools.values()
        for a, b in _runs(recorded.states)
    ]
    young, old = _hazard(lives_h, 0.0, 1.0), _hazard(lives_h, 6.0, 30.0)
    assert young > 2.5 * old


def _runs(states: Sequence[MarketState]) -> list[tuple[MarketState, MarketState]]:
    """First and following state of each stretch up that was seen to end."""
    turns = [states[0], *(b for a, b in pairwise(states) if _up(a) != _up(b))]
    return [(a, b) for a, b in pairwise(turns) if _up(a)]


def _up(state: MarketState) -> bool:
    return bool(state.nodes_available)


def _hazard(lives_h: list[float], low: float, high: float) -> float:
    exposed = sum(min(life, high) - low for life in lives_h if life > low)
    return sum(low < life <= high for life in lives_h) / exposed


def test_zones_of_a_region_fail_together_more_than_strangers(typical: MarketHistory) -> None:
    ups = {
        pool: [bool((s := recorded.at(at)) and s.nodes_available) for at in _grid(typical)]
        for pool, recorded in typical.pools.items()
    }
    near = [_correlation(ups[a], ups[b]) for a, b in combinations(ups, 2) if a.region == b.region]
    far = [_correlation(ups[a], ups[b]) for a, b in combinations(ups, 2) if a.region != b.region]
    assert 0.2 < sum(near) / len(near) < 0.6
    assert abs(sum(far) / len(far)) < 0.25
    assert sum(near) / len(near) > sum(far) / len(far) + 0.1


def _grid(history: MarketHistory) -> list[datetime]:
    span = history.ends_at - history.starts_at
    return [history.starts_at + span * i / 2000 for i in range(2000)]


def _correlation(x: list[bool], y: list[bool]) -> float:
    n, mx, my = len(x), sum(x) / len(x), sum(y) / len(y)
    covariance = sum(a and b for a, b in zip(x, y, strict=True)) / n - mx * my
    return covariance / math.sqrt(mx * (1 - mx) * my * (1 - my))


def test_prices_step_a_few_times_a_day_around_their_mean(typical: MarketHistory) -> None:
    for statistics in history_statistics(typical).values():
        assert statistics.mean_usd_per_hour == pytest.approx(1.0, abs=0.25)
    changes = sum(
        a.price_usd_per_hour != b.price_usd_per_hour
        for recorded in typical.pools.values()
        for a, b in zip(recorded.states, recorded.states[1:], strict=False)
    )
    assert 2.0 < changes / len(typical.pools) / DAYS < 7.0


def test_on_demand_is_never_short_and_keeps_its_price() -> None:
    history = generate_market({ON_DEMAND: 3.06}, hours=24, seed=1)
    (state,) = history.pools[ON_DEMAND].states
    assert (state.nodes_available, state.price_usd_per_hour) == (UNLIMITED_NODES, 3.06)


def test_the_record_says_how_it_was_made() -> None:
    history = generate_market(
        {SPOT: 1.0}, hours=2, seed=9, profile="harsh", start_at=T0, tick_s=60.0
    )
    assert history.source == "generated: profile harsh, seed 9"
    assert (history.tick_s, history.starts_at) == (60.0, T0)
    assert (history.ends_at - T0).total_seconds() == 7200


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(MarketError, check=has_code("no_pools")):
        generate_market({}, hours=1, seed=1)
    with pytest.raises(MarketError, match="impossible"):
        generate_market({SPOT: float("nan")}, hours=1, seed=1)
    with pytest.raises(MarketError, check=has_code("unknown_profile")):
        generate_market({SPOT: 1.0}, hours=1, seed=1, profile="sunny")
    with pytest.raises(MarketError, match="-1 h"):
        generate_market({SPOT: 1.0}, hours=-1, seed=1)
    with pytest.raises(MarketError, match="naive"):
        generate_market({SPOT: 1.0}, hours=1, seed=1, start_at=T0.replace(tzinfo=None))


def test_the_parameters_hold_every_profile() -> None:
    names = [profile.name for profile in generator_parameters().profiles]
    assert names == ["calm", "typical", "harsh", "scarce"]


def test_the_benchmarks_gangs_have_their_sizes_in_every_phase() -> None:
    job = build_job("gangs of 1 to 8")
    assert {(phase.min_nodes, phase.max_nodes) for phase in job.phases} == {(1, 8)}
