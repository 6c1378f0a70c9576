"""The MILP strategy: plan with the optimizer, follow the plan, plan again when inputs change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from costopt.domain.errors import InfeasibleError, SolverError
from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.view import Decision, Desired, JobView, Target, View
from costopt.strategies.gang_options import gang_options
from costopt.strategies.remaining_time import keep_current

if TYPE_CHECKING:
    from costopt.optimize.colgen.warm_start import WarmStart

PRICE_STEP = 1.02


@dataclass(frozen=True, slots=True)
class _PlanInputs:
    """What a plan rests on: it is kept for as long as this stays the same."""

    pools: tuple[tuple[str, int | None, int], ...]
    gangs: tuple[tuple[str, tuple[str, ...]], ...]


class MilpStrategy:
    """The strategy that follows ``costopt.optimize.plan``.

    It plans again every ``replan_s`` seconds or when its inputs change: a pool comes or goes, a
    price moves by more than 2 %, or a gang changes. A job that is slower than planned reaches the
    end of its plan with work left: it is then planned again, and keeps its nodes.
    """

    joint: ClassVar[bool] = True
    spreads_zones: ClassVar[bool] = True

    def __init__(
        self, replan_s: float = 3600.0, gap: float = 0.01, time_limit_s: float = 5.0
    ) -> None:
        self.replan_s = replan_s
        self.gap = gap
        self.time_limit_s = time_limit_s
        self._plan: Plan | None = None
        self._warm: WarmStart | None = None
        self._ground: _PlanInputs | None = None

    def decide(self, view: View) -> Desired:
        """Return the plan's decisions for now; wait where it has none."""
        plan = self._current_plan(view)
        return Desired(tuple(_follow(plan, view, jv) for jv in view.jobs))

    def _current_plan(self, view: View) -> Plan | None:
        """Return the current plan, or a new one; None where the optimizer fails."""
        from costopt.optimize.colgen.warm_start import WarmStart
        from costopt.optimize.planner import plan
        from costopt.optimize.request import build_request

        ground = _ground(view)
        kept_for = timedelta(seconds=self.replan_s)
        if (
            self._plan is not None
            and ground == self._ground
            and view.now < self._plan.made_at + kept_for
            and not _runs_out(self._plan, view)
        ):
            return self._plan
        request = build_request(view)
        self._ground = ground
        self._warm = self._warm or WarmStart()
        try:
            self._plan = plan(
                request,
                time_limit_s=self.time_limit_s,
                gap=self.gap,
                explain=False,
                warm=self._warm,
            )
        except (SolverError, InfeasibleError):
            self._plan = None
        return self._plan


def _ground(view: View) -> _PlanInputs:
    most = max((jv.job.resources.max_nodes for jv in view.jobs), default=0)
    pools = tuple(
        (
            str(o.pool),
            None if o.nodes_available is None else min(o.nodes_available, most),
            _price_step(o.price_usd_per_hour.value),
        )
        for o in view.offers
        if o.price_usd_per_hour is not None
    )
    gangs = tuple((jv.job.name, tuple(sorted(n.node_id for n in jv.nodes))) for jv in view.jobs)
    return _PlanInputs(pools, gangs)


def _price_step(usd_per_hour: float) -> int:
    """On a scale on which a step is 2 %; below a micro-dollar all is one step."""
    return round(math.log(max(usd_per_hour, 1e-6), PRICE_STEP))


def _runs_out(plan: Plan, view: View) -> bool:
    """Whether a job that is not over has nothing of its plan ahead of it."""
    planned = {allocation.job for allocation in plan.allocations}
    ahead = {allocation.job for allocation in plan.allocations if allocation.end_at > view.now}
    return any(jv.job.name in planned - ahead for jv in view.jobs)


def _follow(plan: Plan | None, view: View, job_view: JobView) -> Decision:
    name = job_view.job.name
    if job_view.progress.done_units >= job_view.job.work.amount:
        return _finish(view, job_view)
    if plan is None:
        return Decision(name, keep_current(job_view), "the optimizer failed: what runs is kept")
    if plan.status in (PlanStatus.INFEASIBLE, PlanStatus.EMPTY):
        why = plan.binding or plan.status.value
        return Decision(name, keep_current(job_view), f"no plan, so what runs is kept: {why}")
    targets = _targets_at(plan, name, view.now)
    made_at = f"{plan.made_at:%H:%M} UTC"
    if targets:
        return Decision(name, targets, f"as planned at {made_at}")
    return Decision(name, (), f"no capacity for the plan of {made_at}")


def _finish(view: View, job_view: JobView) -> Decision:
    """All the work is done: what runs saves it and ends; if it was taken, another gang ends it."""
    name, present = job_view.job.name, keep_current(job_view)
    if present:
        return Decision(name, present, "all the work is done; the command has still to end")
    free = [option for option in gang_options(view, job_view) if option.free]
    if not free:
        return Decision(name, (), "all the work is done; no capacity to end the command on")
    cheapest = min(free, key=lambda option: option.score_usd_per_hour)
    return Decision(name, cheapest.targets, "all the work is done; only to end the command")


def _targets_at(plan: Plan, job: str, now: datetime) -> tuple[Target, ...]:
    return tuple(
        Target(a.pool, a.nodes, a.power_cap_w)
        for a in plan.allocations
        if a.job == job and a.start_at <= now < a.end_at
    )
