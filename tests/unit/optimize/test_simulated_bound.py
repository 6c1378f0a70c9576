"""The bound of simulated plans against an exhaustive search over what a small job could run."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from costopt.domain.job import Resources
from costopt.domain.market import CapacityType
from costopt.domain.policy import Objective, Policy, Risk
from costopt.optimize.chance_constraint import simulate_plan
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import plan, prepare
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment
from costopt.optimize.simulated_bound import simulated_bound
from costopt.optimize.solve import single_configuration_segments
from tests.support.optimize_fixtures import job, offer, plan_request, pool

SHARES = (0.2, 0.4, 0.6, 0.8)
NOISE = 0.02
"""The bound is of 200 samples of each run, the plans of 2,000."""


def request_of(seed: int) -> PlanRequest:
    """Two or three spot pools, one often lost, an uninterruptible one, and a tight deadline."""
    rng = np.random.default_rng(seed)
    spot = [
        offer(pool(zone), float(rng.uniform(1, 3)), hazard=hazard, hazard_high=3 * hazard)
        for zone, hazard in zip("abc", rng.choice([0.02, 0.1, 0.3, 0.6], 3).tolist(), strict=True)
    ]
    offers = (*spot, offer(pool("z", kind=CapacityType.ON_DEMAND), float(rng.uniform(4, 7))))
    what = job(
        20,
        deadline_h=float(rng.uniform(14, 32)),
        resources=Resources(max_nodes=2),
        startup_s=900,
        save_s=60,
    )
    policy = Policy("p", Objective(usd_per_kwh=0.05), Risk(0.95, 0.0))
    return plan_request(offers, what, policy=policy)


def halves(part: PlannedJob, first: Segment, second: Segment, share: float) -> list[Segment]:
    """A share of the work on one, the rest on the other."""
    table = part.table
    made, end_h = [], 0.0
    for one, hours in ((first, first.hours * share), (second, second.hours * (1 - share))):
        fewer = one.hours - hours
        begin_h, end_h = end_h, end_h + one.start_h + hours * float(table.calendar[one.row])
        made.append(
            replace(
                one,
                begin_h=begin_h,
                end_h=end_h,
                earliest_h=0.0,
                hours=hours,
                usd=one.usd - fewer * float(table.usd_per_hour[one.row]),
            )
        )
    return made


def best_of_all(request: PlanRequest, part: PlannedJob) -> float:
    """The least that a plan of one or two configurations costs that is in time often enough."""
    alone = [single_configuration_segments(part, row)[0] for row in range(len(part.table))]
    tried = [[one] for one in alone]
    tried += [halves(part, *pair, w) for pair in permutations(alone, 2) for w in SHARES]
    simulated = [simulate_plan(request, part, segments) for segments in tried]
    return min((one.score_usd for one in simulated if one.may_be_taken), default=np.inf)


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_of_an_exhaustive_search_is_below_the_bound(seed: int) -> None:
    request = request_of(seed)
    ((part,), _) = prepare(request)
    best = best_of_all(request, part)
    bound = simulated_bound(part, request.policy.objective, best)
    assert bound <= best * (1 + NOISE)
    assert bound >= 0.7 * best


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_is_as_near_the_best_of_an_exhaustive_search_as_it_says(seed: int) -> None:
    request = request_of(seed)
    ((part,), _) = prepare(request)
    best, made = best_of_all(request, part), plan(request, explain=False)
    forecast = made.forecast_of("job")
    assert forecast is not None
    assert made.gap is not None
    (objective, kwh) = request.policy.objective, forecast.kwh or 0.0
    score = objective.score_usd(forecast.usd_mean, kwh, 0.0)
    assert score * (1 - made.gap) <= best * (1 + NOISE)
