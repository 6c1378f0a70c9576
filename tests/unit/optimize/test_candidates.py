"""Candidates stand on the plan's own footing, and say what their figures are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from costopt.domain.estimate import Series
from costopt.domain.job import Job, Resources
from costopt.domain.market import CapacityType, Offer
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Policy, Risk
from costopt.optimize.chance_constraint import (
    MIN_IMPROVEMENT,
    solve_chance_constrained,
)
from costopt.optimize.planner import plan, prepare
from costopt.optimize.pruning import single_held_h, usable_h
from costopt.optimize.request import PlanRequest
from costopt.optimize.simulation import forecast_segments, with_time_margin
from costopt.optimize.solve import SolverSettings, single_configuration_segments
from tests.support.optimize_fixtures import NOW, job, offer, plan_request, pool

ON_DEMAND = CapacityType.ON_DEMAND


SURE = Policy("p", risk=Risk(0.9, 0.0))


def request(offers: Sequence[Offer], what: Job, policy: Policy = SURE) -> PlanRequest:
    return plan_request(offers, what, policy=policy)


def shaky_market(seed: int) -> tuple[list[Offer], Job]:
    """Spot pools of all hazards beside a dear safe one, and a deadline that may be tight."""
    rng = np.random.default_rng(seed)
    offers = [
        offer(
            pool(zone),
            float(rng.uniform(1.0, 2.0)),
            hazard=float(hazard := rng.choice([0.0, 0.02, 0.2])),
            hazard_high=3 * float(hazard),
        )
        for zone in "abcdef"
    ]
    offers.append(offer(pool("z", kind=ON_DEMAND), 5.0))
    what = job(20, deadline_h=float(rng.uniform(13, 40)), resources=Resources(max_nodes=2))
    return offers, what


@pytest.mark.parametrize("seed", [*range(8), 17, 64, 65, 71, 90, 127, 187])
def test_a_plan_costs_no_more_than_one_configuration_would(seed: int) -> None:
    """As simulated, with what changing to the safe pool comes to."""
    wanted = request(*shaky_market(seed))
    parts, _ = prepare(wanted)
    (part,) = parts
    best = solve_chance_constrained(wanted, parts, SolverSettings(10.0, 0.005))
    planned = best.judged[0].score_usd
    table, demand = with_time_margin(part.table, 0.0), part.demand
    in_time = np.flatnonzero(single_held_h(table, demand) <= usable_h(table, demand))
    for row in in_time.tolist():
        segments = single_configuration_segments(replace(part, table=table), row)
        forecast, samples = forecast_segments(part.table, segments, demand, NOW)
        if forecast.on_time.is_at_least(wanted.policy.risk.on_time):
            assert planned <= float(samples.usd.mean()) * (1 + 2 * MIN_IMPROVEMENT), (
                part.table.label(row)
            )


def test_a_plan_of_one_pool_shows_its_own_figures_there() -> None:
    made = plan(request([offer(pool("a"), 1.0, hazard=0.05), offer(pool("b"), 3.0)], job()))
    (chosen,) = (c for c in made.candidates if c.chosen)
    assert chosen.forecast == made.forecasts[0][1]


def test_candidates_pay_the_prices_of_the_hours_that_they_would_run() -> None:
    """Present prices are ten times those of all later hours."""
    offers = [offer(pool("a"), 10.0), offer(pool("b"), 11.0)]
    wanted = request(offers, job(20, deadline_h=30))
    at = (NOW, NOW + timedelta(hours=1))
    moving = replace(
        wanted,
        price_forecasts={
            o.pool: Series(at, (p.value, p.value / 10), "made up")
            for o in offers
            if (p := o.price_usd_per_hour)
        },
    )
    made = plan(moving)
    planned = made.forecasts[0][1].usd_p50
    for candidate in made.candidates:
        assert candidate.price_usd_per_hour in (10.0, 11.0)
        assert planned <= candidate.forecast.usd_p50 * 1.001
        assert candidate.forecast.usd_p50 < 2 * planned
        if candidate.rejection is not None and candidate.rejection.code == "costs_more":
            assert candidate.rejection.enters_below_usd_per_hour is not None


def test_a_spread_over_zones_is_a_candidate() -> None:
    offers = [offer(pool(zone), usd) for zone, usd in (("a", 1.0), ("b", 1.1), ("c", 1.2))]
    what = job(20, deadline_h=30, resources=Resources(min_nodes=2, max_nodes=2))
    halves = Policy("p", risk=Risk(0.9, 0.0), limits=Limits(max_zone_share=0.5))
    made = plan(request(offers, what, halves))
    (chosen,) = (c for c in made.candidates if c.chosen)
    assert chosen.spread == ((offers[0].pool, 1), (offers[1].pool, 1))
    assert chosen.nodes == 2
    assert chosen.price_usd_per_hour == pytest.approx(1.05)
    assert {a.pool for a in made.allocations} == {where for where, _ in chosen.spread}


def test_figures_that_are_mostly_those_of_the_fallback_say_so() -> None:
    """One node of the spot pool is far too slow; the safe pool's two are not allowed to wait."""
    offers = [
        offer(pool("a"), 1.0, hazard=0.5),
        offer(pool("b", kind=ON_DEMAND), 4.0),
    ]
    made = plan(request(offers, job(10, deadline_h=11, save_s=60)))
    shaky = next(c for c in made.candidates if c.pool == offers[0].pool)
    safe = next(c for c in made.candidates if c.pool == offers[1].pool)
    assert shaky.forecast.falls_back.value > 0.5
    assert safe.forecast.falls_back.high == 0.0
    assert made.status is not PlanStatus.EMPTY
