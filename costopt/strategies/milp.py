"""Plan ahead with the optimizer, follow the plan, and plan again when the world has changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.view import Decision, Desired, JobView, Target, View

PRICE_STEP = 0.02


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a plan rests on: it is kept for as long as this stays the same."""

    pools: tuple[tuple[str, bool, int], ...]
    gangs: tuple[tuple[str, tuple[str, ...]], ...]


class Milp:
    """Follows ``costopt.optimize.plan``, made anew every ``replan_s`` or when its ground moves.

    The ground moves when a pool comes or goes, a price moves by more than 2 %, or a gang changes.
    A job that is slower than planned comes to the end of its plan with work left: it is planned
    anew then, and not taken off its nodes.
    """

    def __init__(
        self, replan_s: float = 3600.0, gap: float = 0.01, time_limit_s: float = 5.0
    ) -> None:
        self.replan_s = replan_s
        self.gap = gap
        self.time_limit_s = time_limit_s
        self._plan: Plan | None = None
        self._ground: _Ground | None = None

    def decide(self, view: View) -> Desired:
        """What the plan holds for now; where it says nothing, wait."""
        plan = self._current_plan(view)
        return Desired(tuple(_follow(plan, view, jv) for jv in view.jobs))

    def _current_plan(self, view: View) -> Plan:
        from costopt.optimize.planner import plan
        from costopt.optimize.request import PlanRequest

        ground = _ground(view)
        kept_for = timedelta(seconds=self.replan_s)
        if (
            self._plan is not None
            and ground == self._ground
            and view.now < self._plan.made_at + kept_for
            and not _runs_out(self._plan, view)
        ):
            return self._plan
        request = PlanRequest(
            now=view.now,
            jobs=view.jobs,
            offers=view.offers,
            machines=view.machines,
            powers=view.powers,
            policy=view.policy,
            rejections=view.rejections,
        )
        self._plan = plan(request, time_limit_s=self.time_limit_s, gap=self.gap, explain=False)
        self._ground = ground
        return self._plan


def _ground(view: View) -> _Ground:
    pools = tuple(
        (str(o.pool), o.nodes_available == 0, round(o.price_usd_per_hour.value / PRICE_STEP))
        for o in view.offers
        if o.price_usd_per_hour is not None
    )
    gangs = tuple((jv.job.name, tuple(sorted(n.node_id for n in jv.nodes))) for jv in view.jobs)
    return _Ground(pools, gangs)


def _runs_out(plan: Plan, view: View) -> bool:
    """Whether a job that is not over has nothing of its plan ahead of it."""
    planned = {allocation.job for allocation in plan.allocations}
    ahead = {allocation.job for allocation in plan.allocations if allocation.end_at > view.now}
    return any(jv.job.name in planned - ahead for jv in view.jobs)


def _follow(plan: Plan, view: View, job_view: JobView) -> Decision:
    name = job_view.job.name
    if plan.status in (PlanStatus.INFEASIBLE, PlanStatus.EMPTY):
        return Decision(name, (), f"no plan: {plan.binding or plan.status.value}")
    targets = _targets_at(plan, name, view.now)
    if targets:
        return Decision(
            name, targets, f"the plan of {plan.made_at:%H:%M} UTC runs {targets[0].pool}"
        )
    return Decision(name, (), f"the plan of {plan.made_at:%H:%M} UTC waits for a cheaper hour")


def _targets_at(plan: Plan, job: str, now: datetime) -> tuple[Target, ...]:
    return tuple(
        Target(a.pool, a.nodes, a.power_cap_w)
        for a in plan.allocations
        if a.job == job and a.start_at <= now < a.end_at
    )
