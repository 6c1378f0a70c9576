"""What is done with knowing the rates of a whole record, or how long spot lasts."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from statistics import fmean

import pytest

from costopt.backtesting.known_lifetimes import RecordedLifetimes, recorded_law
from costopt.backtesting.lifetime_oracle import LifetimeOracle
from costopt.backtesting.replay import ReplayResult, replay
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.ports import Strategy
from costopt.market.lifetime import lifetime_key, prior_rates
from costopt.strategies.shield import ShieldedStrategy
from tests.support.cant_be_late import NoHazard, OneMachine, OnePower, hindsight_usd, job, policy
from tests.support.cant_be_late import market as one_zone
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, task
from tests.support.market_fixtures import after, market, pool_history
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

OVERHEAD_S = 600.0


def _job(work_s: float = 6 * HOUR_S, span_s: float = 20 * HOUR_S) -> Job:
    made = replace(task(work_s, span_s, save_s=0), startup_s=OVERHEAD_S)
    return replace(made, checkpoint=replace(made.checkpoint, restore_s=0.0, interval_s=1e9))


def _record(**until_s: float) -> MarketHistory:
    """Spot in two zones at 2 $/h, from the start until the seconds given, and 8 $/h on demand."""
    ends_s = 60 * HOUR_S
    pools = {"a": SPOT_A, "b": SPOT_B}
    spot = [
        pool_history(pools[zone], [(0, 1, 2.0), (until, 0, 2.0)], ends_s)
        for zone, until in until_s.items()
    ]
    return market(*spot, pool_history(SAFE, [(0, 9, 8.0)], ends_s), tick_s=600.0)


def _choice(record: MarketHistory, *pools: Pool, on: Pool | None = None, now_s: float = 0) -> str:
    offers = [offer(pool, 8.0 if pool == SAFE else 2.0) for pool in pools]
    nodes = () if on is None else nodes_in(on)
    view = build_view(_job(), offers, nodes=nodes, now_s=now_s, uninterruptible_s=600.0, done=1.0)
    targets = only(LifetimeOracle(record).decide(view)).targets
    return str(targets[0].pool) if targets else "wait"


def test_of_two_zones_the_one_that_lasts_is_taken() -> None:
    record = _record(a=HOUR_S, b=3 * HOUR_S)
    assert _choice(record, SPOT_A, SPOT_B, SAFE) == str(SPOT_B)


def test_what_does_not_outlast_its_own_start_is_left() -> None:
    assert _choice(_record(a=OVERHEAD_S), SPOT_A, SAFE) == "wait"


def test_spot_must_pay_for_its_start() -> None:
    """L·2 $ against (L − 10 min)·8 $: worth it from L = 800 s on."""
    assert _choice(_record(a=790.0), SPOT_A, SAFE) == "wait"
    assert _choice(_record(a=810.0), SPOT_A, SAFE) == str(SPOT_A)


def test_from_on_demand_it_must_pay_for_the_way_back_as_well() -> None:
    """(L − 2 · 10 min)·8 $: worth it from L = 1,600 s on."""
    assert _choice(_record(a=1590.0), SPOT_A, SAFE, on=SAFE) == str(SAFE)
    assert _choice(_record(a=1610.0), SPOT_A, SAFE, on=SAFE) == str(SPOT_A)


def test_what_runs_is_kept_though_it_ends_soon() -> None:
    record = _record(a=HOUR_S, b=30 * HOUR_S)
    assert _choice(record, SPOT_A, SPOT_B, SAFE, on=SPOT_A) == str(SPOT_A)


def test_behind_the_uniform_pace_it_goes_on_demand() -> None:
    """One second of the six hours of work is done after one of the twenty hours."""
    assert _choice(_record(a=HOUR_S), SAFE, now_s=HOUR_S) == str(SAFE)


def _run(strategy: Strategy | None, task_: Job, history: MarketHistory, name: str) -> ReplayResult:
    return replay(
        task_,
        policy(name),
        history,
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        strategy=strategy,
    )


@pytest.mark.slow
def test_it_pays_less_than_uniform_progress_and_no_less_than_the_optimum() -> None:
    up = ([1, 0, 0] * 6 + [1] * 12 + [0] * 8 + [1, 0] * 5 + [1] * 30) * 12
    history = one_zone(up, 600.0)
    paid: dict[str, list[float]] = {"oracle": [], "uniform": [], "best": []}
    for start in range(0, 300, 50):
        task_ = job(30.0, 0.3, 20.0, start_s=start * 600.0)
        best = hindsight_usd(task_, policy("greedy_spot"), history, OneMachine())
        assert best is not None
        reported = _run(ShieldedStrategy(LifetimeOracle(history)), task_, history, "greedy_spot")
        uniform = _run(None, task_, history, "uniform_progress")
        assert reported.summary.on_time
        assert reported.summary.usd >= best - 1e-4
        paid["oracle"].append(reported.summary.usd)
        paid["uniform"].append(uniform.summary.usd)
        paid["best"].append(best)
    assert fmean(paid["best"]) <= fmean(paid["oracle"]) < fmean(paid["uniform"])


State = tuple[float, int | None, float | None]


def _known_record(*periods: tuple[float, int | None]) -> PoolHistory:
    """Nodes for so many hours each."""
    starts = accumulate((hours for hours, _ in periods[:-1]), initial=0.0)
    states: list[State] = [
        (start * HOUR_S, nodes, None if nodes is None else 2.0)
        for start, (_, nodes) in zip(starts, periods, strict=True)
    ]
    return pool_history(SPOT_A, states, sum(hours for hours, _ in periods) * HOUR_S)


def test_a_rate_is_endings_over_hours_at_that_age() -> None:
    """Five hundred periods with capacity end after three hours each, and come back after one."""
    history = _known_record(*[(3.0, 2), (1.0, 0)] * 500)
    rates, share = recorded_law(history, 1, history.ends_at)
    of_age = rates.class_at(3.0 - 1e-6)
    spent_h = 3.0 - rates.from_h[of_age]
    assert rates.up_per_hour[of_age] == pytest.approx(1 / spent_h, rel=0.02)
    assert rates.up_per_hour[of_age - 1] < 0.01
    assert share == pytest.approx(0.75)


def test_a_gang_sees_only_the_periods_with_room_for_it() -> None:
    history = _known_record((3.0, 2), (1.0, 1), (4.0, 0), (2.0, 2))
    assert recorded_law(history, 1, history.ends_at)[1] == pytest.approx(0.6)
    assert recorded_law(history, 2, history.ends_at)[1] == pytest.approx(0.5)


def test_a_gap_ends_a_period_unseen() -> None:
    gap = _known_record(*[(3.0, 1), (2.0, None)] * 50)
    rates, share = recorded_law(gap, 1, gap.ends_at)
    assert share == 1.0
    assert max(rates.up_per_hour) < max(prior_rates().up_per_hour)


def test_rates_are_known_before_anything_is_observed_and_do_not_move() -> None:
    history = _known_record(*[(3.0, 2), (1.0, 0)] * 500)
    known = RecordedLifetimes(market(history))
    key = lifetime_key("job", SPOT_A, 1)
    before = known.rates(key)
    for hour in range(10):
        known.observe(key, "aws/r", bool(hour % 2), after(hour * HOUR_S))
    assert known.rates(key) == before == recorded_law(history, 1, history.ends_at)[0]
    assert known.age_h(key) == 0.0
    other = lifetime_key("job", SPOT_B, 1)
    assert known.rates(other) == prior_rates()
    assert list(known.scenarios((key, other))) == [(1.0, (before, prior_rates()))]
