"""Plans the jobs of an account together: who is served, who is not and why, and what would help."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.domain.limits import Resource
from costopt.domain.plan import Constraint, Plan, PlanStatus
from costopt.domain.policy import LIMIT_SPECS, Policy
from costopt.formatting import number_text, seconds_text
from costopt.planning.quotes import QuoteSet
from costopt.planning.request import build_plan_request

if TYPE_CHECKING:
    from costopt.optimize.planner import Forecaster
    from costopt.optimize.request import PlanRequest

TOGETHER_S, EACH_S = 10.0, 0.5
"""Seconds that a plan of several jobs may take, and that each job adds."""

EXPLAIN_S, TRY_S = 20.0, 2.0
"""Seconds for the search of what would serve the others, and for each plan of it."""

WINDOW_FACTORS = (1.25, 1.5, 2.0, 3.0)
"""How much more time until the deadline is tried, the least first."""

MAX_HOLDERS = 3


@dataclass(frozen=True, slots=True)
class UnservedJob:
    """A job that no plan of all jobs finishes in time: why, and changes that would serve it."""

    job: str
    why: str
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccountPlan:
    """The plan of several jobs together under one policy, and the jobs that it does not serve."""

    jobs: tuple[Job, ...]
    policy: Policy
    plan: Plan
    unserved: tuple[UnservedJob, ...] = ()

    @property
    def served(self) -> tuple[Job, ...]:
        """Return the jobs that the plan finishes in time."""
        missing = {each.job for each in self.unserved}
        return tuple(job for job in self.jobs if job.name not in missing)


def check_names(jobs: Sequence[Job]) -> None:
    """Raise SpecError for two jobs of one name."""
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            raise SpecError(
                f"{count} of the jobs are named {name!r}",
                hint="give each job a name of its own",
                code="duplicate",
            )


def plan_account(
    jobs: Sequence[Job],
    policy: Policy,
    seen: QuoteSet,
    account: Account = UNLIMITED,
    *,
    explain: bool = True,
) -> AccountPlan:
    """Return the plan of all jobs; ``explain`` False leaves out what would help those not served.

    Raise SpecError for two jobs of one name, and StaleDataError.
    """
    from costopt.planning.forecast.replay_forecast import choose_forecaster

    check_names(jobs)
    request = build_plan_request(jobs, policy, seen, account)
    forecaster = choose_forecaster(jobs, policy, seen, account)
    return plan_request(request, policy, explain=explain, forecaster=forecaster)


def plan_request(
    request: PlanRequest,
    policy: Policy,
    *,
    explain: bool = True,
    time_limit_s: float | None = None,
    forecaster: Forecaster | None = None,
) -> AccountPlan:
    """Return the plan of the jobs of a request, as ``plan_account`` does.

    ``forecaster`` returns what will be run, where that is not the plan.
    """
    from costopt.optimize.planner import plan

    jobs = tuple(view.job for view in request.jobs)
    limit_s = time_limit_s or TOGETHER_S + EACH_S * len(jobs)
    made = plan(request, time_limit_s=limit_s, explain=False, forecaster=forecaster)
    served = {each.job for each in made.allocations}
    unserved: tuple[str, ...] = ()
    if made.status is PlanStatus.INFEASIBLE:
        unserved = tuple(job.name for job in jobs if job.name not in served)
    search = _RemedySearch(request, made, served)
    return AccountPlan(
        jobs, policy, made, tuple(search.explain(name, help_=explain) for name in unserved)
    )


class _RemedySearch:
    """Looks for what keeps a job from being served, for as long as there is time."""

    def __init__(self, request: PlanRequest, made: Plan, served: set[str]) -> None:
        self._request, self._made = request, made
        self._served = tuple(view for view in request.jobs if view.job.name in served)
        self._until_s = time.monotonic() + EXPLAIN_S

    def explain(self, name: str, *, help_: bool) -> UnservedJob:
        """Return why the plan does not serve the job, and with ``help_`` what would."""
        from costopt.optimize.planner import plan

        own = next(view for view in self._request.jobs if view.job.name == name)
        alone = plan(replace(self._request, jobs=(own,)), time_limit_s=TRY_S, explain=False)
        if alone.status is PlanStatus.INFEASIBLE:
            why = alone.binding or "for an unknown reason"
            later = tuple(self._later_deadlines(own.job, ())) if help_ else ()
            return UnservedJob(name, why, later)
        short = tuple(self._short_limits(alone))
        why = "; ".join(_shortage(limit, needed) for limit, needed in short)
        remedies: tuple[str, ...] = ()
        if help_:
            raised = self._raised_limits(own.job, short)
            remedies = (*raised, *self._later_deadlines(own.job, self._served))
        return UnservedJob(name, why or "the other jobs leave it too little capacity", remedies)

    def _short_limits(self, alone: Plan) -> Iterator[tuple[Constraint, float]]:
        """The limits that the job's own plan would break beside the others, with its need."""
        planned = {each.name: each for each in self._made.constraints}
        for own in alone.constraints:
            others = planned.get(own.name)
            needed = sum(use.amount for use in own.uses)
            if others is not None and others.most is not None and needed > others.slack + 1e-9:
                yield others, needed

    def _raised_limits(self, job: Job, short: Sequence[tuple[Constraint, float]]) -> Iterator[str]:
        """The limits of which more alone would serve the job."""
        for limit, needed in short:
            assert limit.most is not None
            most = limit.most - limit.slack + needed
            raised = _with_most(self._request, limit, most)
            if raised is not None and self._serves(raised, job, self._served):
                label = _label(limit)
                yield f"raise {label} from {number_text(limit.most)} to {number_text(most)}"

    def _later_deadlines(self, job: Job, others: Sequence[Any]) -> Iterator[str]:
        """The first deadline of those tried with which the job is served beside the others."""
        begin_at = max(self._request.now, job.start_at)
        for factor in WINDOW_FACTORS:
            window = (job.until_at - begin_at) * factor
            later = replace(job, deadline_at=begin_at + window)
            if window > timedelta(0) and self._serves(self._request, later, others):
                yield f"a deadline of {seconds_text(window.total_seconds())}"
                return

    def _serves(self, request: PlanRequest, job: Job, others: Sequence[Any]) -> bool:
        """Whether a plan within the time left serves the job and these others."""
        from costopt.optimize.chance_constraint import solve_chance_constrained
        from costopt.optimize.planner import prepare
        from costopt.optimize.solve import SolverSettings

        if time.monotonic() > self._until_s:
            return False
        own = next(view for view in request.jobs if view.job.name == job.name)
        tried = replace(request, jobs=(*others, replace(own, job=job)))
        parts, _ = prepare(tried)
        return solve_chance_constrained(tried, parts, SolverSettings(TRY_S, 0.05)).answer.solved


def _label(limit: Constraint) -> str:
    return limit.name.removesuffix(f" ({limit.unit})")


def _shortage(limit: Constraint, needed: float) -> str:
    """What the job needs of a limit, and who holds it."""
    assert limit.most is not None
    largest = sorted(limit.uses, key=lambda use: -use.amount)
    holders = ", ".join(f"{use.job} {number_text(use.amount)}" for use in largest[:MAX_HOLDERS])
    more = f" and {len(largest) - MAX_HOLDERS} more" if len(largest) > MAX_HOLDERS else ""
    held = f", held by {holders}{more}" if holders else ""
    amounts = f"{number_text(needed)} of {number_text(limit.most)} {limit.unit}".rstrip()
    return f"{_label(limit)}: needs {amounts}{held}"


def _with_most(request: PlanRequest, limit: Constraint, most: float) -> PlanRequest | None:
    """Return the request with more of the limit, None where it is not the account's to raise."""
    label = _label(limit)
    field = next((each.field for each in Resource if each.unit == limit.unit), "max_usd")
    for number, quota in enumerate(request.quotas):
        if label == f"quota {quota.name}":
            more: dict[str, Any] = {field: most}
            quotas = (*request.quotas[:number], replace(quota, **more))
            return replace(request, quotas=(*quotas, *request.quotas[number + 1 :]))
    for name, tenant in request.tenants.items():
        if label in (f"quota of tenant {name}", f"max_usd of tenant {name}"):
            more = {field: most}
            tenants = {**request.tenants, name: replace(tenant, **more)}
            return replace(request, tenants=tenants)
    spec = LIMIT_SPECS.get(label.removesuffix(" of the policy"))
    if spec is None:
        return None
    limits = request.policy.limits.with_maxima((spec,), most)
    return replace(request, policy=replace(request.policy, limits=limits))
