"""Plans over moving prices against exhaustive search, a compact program and slot-by-slot packing.

Every plan is judged from its allocations alone: its constraints, and its objective recomputed.
COSTOPT_ORACLE_EXAMPLES asks for more instances than the normal run has.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.policy import Objective, ObjectiveTerm
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.fleet_requests import (
    Shape,
    crowds,
    frugal_jobs,
    lone_jobs,
    small_request,
    staged_jobs,
)
from tests.support.myopic_packer import packed_usd
from tests.support.optimize_enumeration import cheapest_usd
from tests.support.optimize_fixtures import UNHURRIED_S
from tests.support.optimize_oracle import optimum_usd
from tests.support.plan_check import faults_of, objective_usd

EXAMPLES = int(os.environ.get("COSTOPT_ORACLE_EXAMPLES", "60"))


HAIR = 0.003
"""The share of the work by which an instance may miss being feasible, or infeasible."""


def examples(share: float) -> settings:
    """This share of the usual number of examples."""
    return settings(
        max_examples=max(1, int(EXAMPLES * share)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def with_work(request: PlanRequest, factor: float) -> PlanRequest:
    """The same with a hair more or less to do."""
    views = tuple(
        replace(v, job=replace(v.job, work=replace(v.job.work, amount=v.job.work.amount * factor)))
        for v in request.jobs
    )
    return replace(request, jobs=views)


def without_restores(request: PlanRequest) -> PlanRequest:
    """The same of jobs that load their checkpoints in no time."""
    views = (
        replace(v, job=replace(v.job, checkpoint=replace(v.job.checkpoint, restore_s=0.0)))
        for v in request.jobs
    )
    return replace(request, jobs=tuple(views))


def assert_right(request: PlanRequest, made: Plan, reachable_usd: float | None) -> None:
    """``made`` is right where the best plan that can be carried out costs ``reachable_usd``."""
    if made.objective_usd is None or made.bound_usd is None:
        assert made.status is PlanStatus.INFEASIBLE
        assert made.binding
        assert reachable_usd is None or (
            optimum_usd(with_work(request, 1 + HAIR), exclusive=True) is None
        )
        return
    min_usd = optimum_usd(with_work(request, 1 - 1e-5), exclusive=False)
    assert min_usd is not None, "a plan where there is none"
    assert faults_of(request, made) == []
    assert objective_usd(request, made) == pytest.approx(made.objective_usd, rel=1e-3, abs=1e-6)
    assert made.objective_usd >= min_usd * (1 - 1e-4)
    assert made.bound_usd <= made.objective_usd * (1 + 1e-9)
    if reachable_usd is not None:
        assert made.bound_usd <= reachable_usd * (1 + 1e-4)


def assert_cheapest(made: Plan, reachable_usd: float | None) -> None:
    """Within a thousandth of the best, or within the gap that the plan itself tells."""
    if made.objective_usd is not None and reachable_usd is not None:
        assert made.gap is not None
        assert made.objective_usd <= reachable_usd * (1 + max(1e-3, 1.01 * made.gap))


@examples(1.0)
@given(lone_jobs())
def test_one_job_is_planned_at_the_optimum(request: PlanRequest) -> None:
    best_usd = cheapest_usd(request)
    made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    assert_right(request, made, best_usd)
    assert_cheapest(made, best_usd)


@examples(0.3)
@given(staged_jobs())
def test_phases_and_budgets_are_planned_at_the_optimum(request: PlanRequest) -> None:
    best_usd = optimum_usd(request, exclusive=True)
    made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    assert_right(request, made, best_usd)
    assert_cheapest(made, best_usd)


AIMS = {
    ObjectiveTerm.KWH: Objective(usd=0.0, usd_per_kwh=1.0),
    ObjectiveTerm.CO2E: Objective(usd=0.0, usd_per_tonne_co2e=1000.0),
}


def scored(request: PlanRequest, objective: Objective) -> PlanRequest:
    """The same under another objective."""
    return replace(request, policy=replace(request.policy, objective=objective))


@examples(0.2)
@given(
    frugal_jobs(),
    st.sampled_from(list(AIMS)),
    st.sampled_from([0.02, 0.05, 0.1, 0.2]),
)
def test_the_least_energy_or_carbon_within_a_limit_on_dollars(
    request: PlanRequest, aim: ObjectiveTerm, tolerance: float
) -> None:
    """By exhaustive search: hours × configurations, of one job or of two that share a quota.

    Plans of two jobs may be cheaper, as they are not bound to whole hours. No start loads a
    checkpoint: that of a second gang is simulated, and not planned.
    """
    request = without_restores(request)
    in_usd, in_aim = scored(request, Objective()), scored(request, AIMS[aim])
    min_usd = optimum_usd(in_usd, exclusive=True)
    wanted = scored(request, Objective(then=(aim,), tolerance=tolerance))
    made = plan(wanted, time_limit_s=UNHURRIED_S, explain=False)
    if min_usd is None or made.objective_usd is None:
        return
    cheapest = plan(in_usd, time_limit_s=UNHURRIED_S, explain=False)
    max_usd = min(min_usd, cheapest.objective_usd or min_usd) * (1 + tolerance)
    assert faults_of(request, made) == []
    assert objective_usd(in_usd, made) <= max_usd * (1 + 1e-3)
    least = optimum_usd(in_aim, exclusive=True, max_usd=max_usd)
    assert least is None or objective_usd(in_aim, made) <= least * 1.005


@examples(0.3)
@given(crowds())
def test_jobs_that_compete_are_planned_within_the_gap_that_is_reported(
    request: PlanRequest,
) -> None:
    best_usd = optimum_usd(request, exclusive=True)
    made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    assert_right(request, made, best_usd)
    assert_cheapest(made, best_usd)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_medium_crowd_is_planned_within_the_gap_that_is_reported(seed: int) -> None:
    shape = Shape(pools=4, hours=8, jobs=4, max_nodes=2, quota_gpus=32)
    request = small_request(random.Random(seed), shape)
    best_usd = optimum_usd(request, exclusive=True)
    assert best_usd is not None
    made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    assert_right(request, made, best_usd)
    assert_cheapest(made, best_usd)
    assert made.gap is not None
    assert made.gap < 0.1


@examples(0.3)
@given(st.one_of(lone_jobs(), crowds()))
def test_a_plan_never_costs_more_than_slot_by_slot_packing(request: PlanRequest) -> None:
    packed = packed_usd(request)
    made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    if packed is None:
        return
    assert made.objective_usd is not None
    assert made.objective_usd <= packed * (1 + 1e-3)


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_plan_costs_less_than_slot_by_slot_packing_where_prices_move(jobs: int) -> None:
    saved = []
    for seed in range(5):
        shape = Shape(pools=4, hours=8, jobs=jobs, max_nodes=2, quota_gpus=16 * jobs)
        request = small_request(random.Random(seed), shape)
        packed = packed_usd(request)
        made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
        if packed is not None and made.objective_usd is not None:
            saved.append(1 - made.objective_usd / packed)
    assert len(saved) >= 3
    assert min(saved) > 0
    assert max(saved) > 0.05


@settings(max_examples=80, deadline=None)
@given(lone_jobs())
def test_the_oracles_agree(request: PlanRequest) -> None:
    tried, solved = cheapest_usd(request), optimum_usd(request, exclusive=True)
    if tried is None or solved is None:
        assert tried is solved
        return
    assert solved == pytest.approx(tried, rel=1e-5)
    mixed = optimum_usd(request, exclusive=False)
    assert mixed is not None
    assert mixed <= solved * (1 + 1e-6)
