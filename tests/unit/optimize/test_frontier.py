"""What-if: scenarios over policies, deadlines and markets; dollars against kWh and finish."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.errors import InfeasibleError
from costopt.domain.estimate import Basis, Estimate, Series
from costopt.domain.job import Job, Resources
from costopt.domain.market import CapacityType
from costopt.domain.plan import Forecast
from costopt.optimize.frontier import FrontierPoint, frontier
from costopt.optimize.pareto import knee, surely_unbeaten
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.errors import has_code
from tests.support.known_figure import known
from tests.support.optimize_fixtures import NOW, UNHURRIED_S, job, offer, plan_request, pool, power

SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


def request(what: Job, *, trade_off: bool = True) -> PlanRequest:
    """Pools from cheap and hungry to expensive and frugal, with an on-demand one."""
    hazard = 0.02 if trade_off else 0.0
    offers = [
        offer(pool("a"), 2.0, hazard=hazard),
        offer(pool("b"), 2.6, hazard=hazard),
        offer(pool("c"), 4.0, hazard=hazard),
        offer(pool("d", kind=ON_DEMAND), 8.0),
    ]
    watts = (6000.0, 4000.0, 3000.0, 5000.0) if trade_off else (4000.0,) * 4
    powers = {o.pool: power(w) for o, w in zip(offers, watts, strict=True)}
    return plan_request(offers, what, powers=powers)


def figures(point: FrontierPoint) -> tuple[float, float, datetime]:
    return point.usd, known(point.kwh), point.forecast.finish_p50_at


def beats(one: FrontierPoint, other: FrontierPoint) -> bool:
    """Whether a point is as good in every figure, by more than rounding in one."""
    return figures(one) != figures(other) and (
        one.usd <= other.usd
        and known(one.kwh) <= known(other.kwh)
        and one.forecast.finish_p50_at <= other.forecast.finish_p50_at
    )


def with_two_speeds() -> PlanRequest:
    """Up to three nodes, whose scaling loses work: faster is dearer."""
    what = job(40, deadline_h=60, resources=Resources(max_nodes=3), efficiency=0.85)
    return request(what)


def moving(wanted: PlanRequest) -> PlanRequest:
    """Prices that halve at the tenth hour."""
    at = (NOW, NOW + timedelta(hours=10))
    series = {
        o.pool: Series(at, (p, p / 2), "made up")
        for o in wanted.offers
        if o.price_usd_per_hour and (p := o.price_usd_per_hour.value)
    }
    return replace(wanted, price_forecasts=series)


def test_the_frontier_trades_dollars_for_energy() -> None:
    found = frontier(request(job(40, deadline_h=60)))
    assert len(found) >= 9
    for cheaper, more_expensive in pairwise(found):
        assert cheaper.usd < more_expensive.usd
    assert {a.pool.zone for a in found[0].allocations} == {"r1a"}
    frugal = min(found, key=lambda point: known(point.kwh))
    assert {a.pool.zone for a in frugal.allocations} == {"r1c"}


def test_the_frontier_trades_dollars_for_the_finish() -> None:
    found = frontier(with_two_speeds(), time_limit_s=UNHURRIED_S)
    assert len(found) >= 20
    cheapest = min(found, key=lambda point: point.usd)
    soonest = min(found, key=lambda point: point.forecast.finish_p50_at)
    assert soonest.forecast.finish_p50_at < cheapest.forecast.finish_p50_at - timedelta(hours=12)
    assert soonest.usd > cheapest.usd


@pytest.mark.slow
@pytest.mark.parametrize("moves", [False, True])
def test_no_point_of_the_frontier_beats_another(moves: bool) -> None:
    wanted = moving(with_two_speeds()) if moves else with_two_speeds()
    found = frontier(wanted, time_limit_s=UNHURRIED_S)
    assert len(found) >= 20
    assert not [(a, b) for a, b in permutations(found, 2) if beats(a, b)]


@pytest.mark.slow
@pytest.mark.parametrize("moves", [False, True])
def test_the_cheapest_point_costs_no_more_than_the_plan(moves: bool) -> None:
    wanted = moving(with_two_speeds()) if moves else with_two_speeds()
    made = plan(wanted, explain=False).forecasts[0][1]
    assert found_usd(wanted) <= made.usd_p50 * 1.03


def found_usd(wanted: PlanRequest) -> float:
    return min(point.forecast.usd_p50 for point in frontier(wanted, time_limit_s=UNHURRIED_S))


@pytest.mark.slow
def test_no_more_points_than_asked_for_and_the_ends_stay() -> None:
    many = frontier(with_two_speeds(), points=40, time_limit_s=UNHURRIED_S)
    few = frontier(with_two_speeds(), points=5, time_limit_s=UNHURRIED_S)
    assert len(few) == 5
    assert min(p.usd for p in few) == pytest.approx(min(p.usd for p in many), rel=1e-3)
    assert min(known(p.kwh) for p in few) == pytest.approx(
        min(known(p.kwh) for p in many), rel=1e-3
    )


def test_without_a_trade_off_the_frontier_is_a_point() -> None:
    assert len(frontier(request(job(40, deadline_h=60), trade_off=False))) == 1


def test_without_a_plan_there_is_no_frontier() -> None:
    assert frontier(request(job(40, deadline_h=20))) == ()


def test_a_what_if_takes_one_job() -> None:
    wanted = request(job())
    two = PlanRequest(
        NOW, wanted.jobs * 2, wanted.offers, wanted.machines, wanted.powers, wanted.policy
    )
    with pytest.raises(InfeasibleError, check=has_code("many_jobs")):
        frontier(two)


def forecast(usd: float, kwh: float, *, noise: float = 0.01) -> Forecast:
    sure, never = (Estimate.exact(p, Basis.MODELLED, "made up") for p in (1.0, 0.0))
    return Forecast(
        usd, usd, usd * 1.2, kwh, kwh, kwh, None, NOW, NOW, sure, never,
        usd_error=noise * usd, kwh_error=noise * kwh,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([(100, 76.4), (100, 76.9), (100, 76.9)], [True, True, True]),
        ([(100, 76.4), (50, 76.6)], [False, True]),
        ([(100, 76.6), (50, 76.4)], [False, True]),
        ([(100, 50), (50, 100)], [True, True]),
        ([(100, 50), (110, 60), (100.5, 50.4)], [True, False, True]),
        ([(0, 10), (0, 20)], [True, False]),
        ([], []),
    ],
)
def test_no_star_is_awarded_or_denied_within_the_noise(
    figures: list[tuple[float, float]], expected: list[bool]
) -> None:
    assert surely_unbeaten([forecast(usd, kwh) for usd, kwh in figures]) == expected


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=12))
def test_some_scenario_is_always_non_dominated(figures: list[tuple[float, float]]) -> None:
    assert any(surely_unbeaten([forecast(usd, kwh, noise=0.1) for usd, kwh in figures]))


def test_without_noise_the_non_dominated_are_the_pareto_optimal() -> None:
    figures = [(float(i * 7 % 11), float(i * 5 % 13)) for i in range(40)]
    found = surely_unbeaten([forecast(usd, kwh, noise=0.0) for usd, kwh in figures])
    for one, is_non_dominated in zip(figures, found, strict=True):
        beaten = any(
            other[0] <= one[0] and other[1] <= one[1] and other != one for other in figures
        )
        assert is_non_dominated is not beaten


def test_the_knee_is_where_a_dollar_begins_to_save_less() -> None:
    """Of a bent line the corner, whatever the units, unknown energy and worse plans besides."""
    bent = [(10.0 + i, 100.0 - (9 * i if i <= 6 else 54 + i - 6)) for i in range(13)]
    assert knee(bent) == 6
    assert knee([(1e3 * usd, kwh / 1e3) for usd, kwh in bent]) == 6
    assert knee([(5.0, None), (15.0, 200.0), *bent]) == 8
    assert knee([(usd, 100.0 - usd) for usd, _ in bent]) is None, "a straight line has none"
    assert knee(bent[:2]) is None
