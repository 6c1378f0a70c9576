"""A job that is slower than its file says stays where it is: it is slow everywhere."""

from __future__ import annotations

from dataclasses import replace

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import GangState, Progress
from costopt.domain.market import Offer, Pool
from costopt.domain.view import Target, View
from costopt.strategies.milp import MilpStrategy
from tests.support.engine_fixtures import HOUR_S, SPOT_A, SPOT_B, SomeHazard, task
from tests.support.market_fixtures import after
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

SLOWNESS = 0.15
JOB = task(2 * HOUR_S, 48 * HOUR_S)


def spot(pool: Pool, usd_per_hour: float) -> Offer:
    hazard = SomeHazard().hazard_per_hour(pool) or Estimate.exact(0.0, Basis.LISTED, "test")
    return replace(offer(pool, usd_per_hour, 9), hazard_per_hour=hazard)


def slow(view: View, done_units: float) -> View:
    """The view of a job that was measured at a fraction of its predicted speed."""
    (job_view,) = view.jobs
    predicted = JOB.throughput.units_per_s(view.machines[SPOT_A], 1)
    assert predicted is not None
    progress = Progress(
        done_units=done_units,
        saved_units=0.0,
        state=GangState.TRAINING,
        generation=1,
        measured_units_per_s=predicted.value * SLOWNESS,
    )
    return replace(view, jobs=(replace(job_view, progress=progress, speed_factor=SLOWNESS),))


def test_it_is_not_moved_to_where_it_was_not_measured() -> None:
    offers = [spot(SPOT_A, 2.0), spot(SPOT_B, 4.0)]
    view = slow(build_view(JOB, offers, nodes=nodes_in(SPOT_A)), 0.1 * JOB.work.amount)
    assert only(MilpStrategy().decide(view)).targets == (Target(SPOT_A, 1),)


def test_it_keeps_its_nodes_when_its_plan_is_over() -> None:
    """The plan was made before the slowness was known, so it ends long before the work."""
    offers = [spot(SPOT_A, 2.0)]
    strategy = MilpStrategy(replan_s=48 * HOUR_S)
    view = build_view(JOB, offers, nodes=nodes_in(SPOT_A))
    strategy.decide(view)
    late = replace(slow(view, 0.5 * JOB.work.amount), now=after(4 * HOUR_S))
    assert only(strategy.decide(late)).targets == (Target(SPOT_A, 1),)
