"""Plans, frontiers and what-ifs of a job that has not begun."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costopt.api.inputs import (
    JobSource,
    Market,
    Span,
    StrPath,
    bad_argument,
    check_choice,
    check_count,
    check_number,
    check_policies,
    check_policy,
    check_spans_s,
    check_words,
)
from costopt.api.priced_inputs import PricedInputs, check_restriction, noted, read_inputs
from costopt.domain.account import Account
from costopt.domain.errors import InfeasibleError
from costopt.domain.job import Job
from costopt.domain.plan import (
    Allocation,
    Candidate,
    Constraint,
    Forecast,
    Plan,
    PlanStatus,
    Rejection,
)
from costopt.domain.policy import Policy
from costopt.planning.account_bill import bill_notes
from costopt.planning.forecast.replays import MAX_REPLAYS, VERIFY_LIMIT_S, Replays
from costopt.planning.request import plan_frontier, plan_job
from costopt.planning.what_if import TERMS, Capacity, Scenario, forecast_notes, plan_scenarios
from costopt.render.table import Table
from costopt.render.tabular import Tabular

if TYPE_CHECKING:
    from pandas import DataFrame

    from costopt.frames import PlanFrame
    from costopt.optimize.frontier import FrontierPoint
    from costopt.render.notebook import Chart
    from costopt.views.frontier import FrontierRow

MAX_POINTS = 100


@dataclass(frozen=True, slots=True, repr=False)
class PlanResult(Tabular):
    """The plan of a job under a policy.

    ``notes`` are sentences on the prices that it rests on and on what is missing. Dollars are USD,
    instants aware UTC, energy kWh at the data centre's meter; None is unknown. ``verification`` is
    the outcome of replays of the engine, None where none were requested or no offer can run it.
    """

    job: Job
    policy: Policy
    plan: Plan
    notes: tuple[str, ...] = ()
    account: Account = field(default_factory=Account)
    verification: Replays | None = None

    @property
    def is_feasible(self) -> bool:
        """Return whether the job can end in time; ``plan.binding`` says what prevents it."""
        return self.plan.status is not PlanStatus.INFEASIBLE

    @property
    def forecast(self) -> Forecast | None:
        """Return the expected dollars, energy and finish, None where there is no plan."""
        return self.plan.forecast_of(self.job.name)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return every configuration as if it did the whole job alone, the chosen ones marked."""
        return self.plan.candidates

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Return what the plan uses: nodes of a pool from an instant to another."""
        return self.plan.allocations

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Return the offers that cannot be used, with a code and a reason."""
        return self.plan.rejections

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Return the limits of the plan with what remains of each."""
        return self.plan.constraints

    def to_frame(self, what: PlanFrame = "candidates") -> DataFrame:
        """Return one row per candidate, allocation, rejection or constraint, with the JSON keys of
        costopt.plan/1.

        Raise MissingExtraError without pandas.
        """
        from costopt.frames import PLAN_FRAMES, plan_frame

        return plan_frame(self.table(top=0), check_choice("what", what, PLAN_FRAMES))

    def to_html(self) -> str:
        """Return the plan, drawn hour by hour, and its candidates as one HTML document."""
        from costopt.render.reports.plan import plan_page

        return plan_page(self.plan, self.table())

    def table(self, *, top: int = 10, explain: bool = False) -> Table:
        """Return the table of the chosen candidates and ``top`` others, 0 for all of them."""
        from costopt.views.plan import plan_table

        return plan_table(
            self.plan,
            self.job,
            self.policy,
            top,
            explain,
            account=self.account,
            options=False,
            verification=self.verification,
        )


@dataclass(frozen=True, slots=True, repr=False)
class FrontierResult(Tabular):
    """Plans that no other plan of the policy betters in dollars, kWh and finish.

    ``points`` are by ascending dollars, and empty where no plan ends the job in time. ``plan`` is
    the policy's own choice at the instant ``made_at``, None where every price is too old.
    """

    job: Job
    policy: Policy
    points: tuple[FrontierPoint, ...]
    plan: Plan | None
    made_at: datetime
    notes: tuple[str, ...] = ()

    def to_frame(self) -> DataFrame:
        """Return one row per plan: dollars, energy, emissions, finish and pools; ``chosen`` is the
        policy's own.

        Raise MissingExtraError without pandas.
        """
        from costopt.frames import table_frame

        return table_frame(self.table())

    def plot(self) -> Chart:
        """Return a chart of dollars, energy and finish, a dot per plan.

        Raise InfeasibleError for no plan to draw.
        """
        from costopt.render.notebook import to_chart
        from costopt.render.reports.what_if import frontier_plot

        if all(point.kwh is None for point in self.points):
            raise InfeasibleError(
                f"there is no plan of known energy to draw for {self.job.name}",
                hint="to_frame() and notes show what there is",
            )
        return to_chart(
            f"Plans for {self.job.name}, policy {self.policy.name}", frontier_plot(self.rows())
        )

    def rows(self) -> tuple[FrontierRow, ...]:
        """Return the points with the policy's own choice marked."""
        from costopt.views.frontier import frontier_rows

        return frontier_rows(self.points, self.job, self.plan, self.made_at)

    def table(self) -> Table:
        """Return the table of the plans."""
        from costopt.views.frontier import frontier_table

        title = f"Frontier of {self.job.name}, policy {self.policy.name}"
        return frontier_table(self.rows(), title)


@dataclass(frozen=True, slots=True, repr=False)
class WhatIfResult(Tabular):
    """Scenarios by policy, deadline and capacity, each planned alone with the same random draws.

    ``frontier`` is that of the first policy at the job's own deadline.
    """

    job: Job
    scenarios: tuple[Scenario, ...]
    frontier: FrontierResult
    notes: tuple[str, ...] = ()

    def to_frame(self) -> DataFrame:
        """Return one row per scenario, with the JSON keys of costopt.what-if/1.

        Raise MissingExtraError without pandas.
        """
        from costopt.frames import table_frame

        return table_frame(self.table())

    def to_html(self) -> str:
        """Return scenarios and frontier, drawn, as one HTML document."""
        from costopt.render.reports.what_if import what_if_page

        return what_if_page(
            self._rows(),
            self.table(),
            policy=self.frontier.policy.name,
            title=f"What if: {self.job.name}",
        )

    def table(self) -> Table:
        """Return the table of the scenarios."""
        from costopt.views.scenario import what_if_table

        rows = self._rows()
        return what_if_table(self.job, self.frontier.policy, self.scenarios, rows)

    def _rows(self) -> tuple[FrontierRow, ...]:
        """The points of the frontier, each with the policies that choose it."""
        from costopt.views.frontier import frontier_rows

        drawn = self.frontier
        return frontier_rows(drawn.points, self.job, drawn.plan, drawn.made_at, self.scenarios)


def plan(
    job: JobSource,
    policy: Policy | StrPath = "cheapest",
    *,
    deadlines: Span | Iterable[Span] = (),
    market: Market | StrPath | None = None,
    account: Account | StrPath | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    gpus: str | None = None,
    capacity: Capacity = "policy",
    at: datetime | None = None,
    carbon: StrPath | None = None,
    max_age_s: float | None = None,
    explain: bool = True,
    verify: int = 0,
    verify_limit_s: float = VERIFY_LIMIT_S,
) -> PlanResult:
    """Return pools, nodes and hours for a job that has not begun: a Job, the path of its file, its
    text in YAML or its fields.

    ``deadlines`` is a duration from the start, such as "13h", in place of the job's deadline; of
    several ``what_if`` makes scenarios. ``market`` may be the name or the path of a market. Prices
    are those of the ``market`` at the instant ``at`` (default: ``market.first_priced_at``); for
    "live" what the account's clouds offer at present; without a market the newest of the price
    lists in the account's clouds and regions: figures older than ``max_age_s`` do not count
    (default: those of more than 30 days, where newer ones exist). ``provider``, ``region`` (one or
    several) and ``capacity`` ("spot", "on_demand", "both", "policy") restrict what the policy
    allows; ``gpus``, such as 8xH100, stands for what the job's file or fields say of GPU models and
    their number. ``account`` has quotas and tenants, ``carbon`` is a file of recorded intensities
    (default: annual means). Without ``explain``, candidates and constraints
    are left out, which is faster.

    ``verify`` replays the job on the engine in so many futures that are sampled as those of the
    forecast, in a process of its own, and counts those that are done in ``verify_limit_s`` seconds.

    A plan that cannot end the job in time is returned too: see ``is_feasible``. Raise
    StaleDataError where every price is too old, SpecError for a bad argument, MarketError,
    SignalError or ProviderError where an input cannot be read.
    """
    from costopt.planning.forecast.replay_forecast import replay_job, replay_notes

    check_count("verify", verify, low=0, high=MAX_REPLAYS)
    check_number("verify_limit_s", verify_limit_s, low=1.0)
    allowed = check_restriction(provider, region, gpus, capacity)
    asked = (check_policy(policy),)
    spans_s = check_spans_s("deadlines", deadlines)
    if len(spans_s) > 1:
        raise bad_argument("deadlines", "are several", "compare them with costopt.what_if")
    inputs = read_inputs((job,), asked, market, account, at, carbon, max_age_s, allowed)
    (chosen,), seen, shared, verified = inputs.policies, inputs.seen, inputs.account, None
    (task,) = [_due(inputs.jobs[0], each, seen.now) for each in spans_s] or inputs.jobs
    with noted(inputs.notes):
        made = plan_job(task, chosen, seen, explain=explain, account=shared)
        if verify:
            verified = replay_job(task, chosen, seen, shared, verify, verify_limit_s)
    notes = (
        *inputs.notes,
        *bill_notes(made.allocations, seen, shared),
        *replay_notes(chosen, (made,)),
    )
    return PlanResult(task, chosen, made, notes, shared, verified)


def frontier(
    job: JobSource,
    policy: Policy | StrPath = "cheapest",
    *,
    points: int = 24,
    market: Market | StrPath | None = None,
    account: Account | StrPath | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    gpus: str | None = None,
    capacity: Capacity = "policy",
    at: datetime | None = None,
    carbon: StrPath | None = None,
    max_age_s: float | None = None,
) -> FrontierResult:
    """Return the Pareto-optimal plans of one policy in dollars, kWh and finish, ``points`` at most.

    Prices are those of ``plan``, and so are the errors.
    """
    check_count("points", points, low=1, high=MAX_POINTS)
    allowed = check_restriction(provider, region, gpus, capacity)
    asked = (check_policy(policy),)
    inputs = read_inputs((job,), asked, market, account, at, carbon, max_age_s, allowed)
    (chosen,), (task,) = inputs.policies, inputs.jobs
    with noted(inputs.notes):
        own = plan_job(task, chosen, inputs.seen, explain=False, account=inputs.account)
        found = plan_frontier(task, chosen, inputs.seen, points, inputs.account)
    return FrontierResult(task, chosen, found, own, inputs.seen.now, inputs.notes)


def what_if(
    job: JobSource,
    policies: Policy | StrPath | Iterable[Policy | StrPath],
    *,
    deadlines: Span | Iterable[Span] = (),
    capacity: Capacity | Iterable[Capacity] = "policy",
    tolerances: Iterable[float] = (),
    points: int = 24,
    market: Market | StrPath | None = None,
    account: Account | StrPath | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    gpus: str | None = None,
    at: datetime | None = None,
    carbon: StrPath | None = None,
    max_age_s: float | None = None,
) -> WhatIfResult:
    """Return a scenario for each policy, deadline, choice of capacity and tolerance, in this order.

    ``deadlines`` are durations from the job's start, such as "13h" (default: the job's own);
    ``capacity`` is what each policy allows, or spot, on_demand or both. ``tolerances`` are shares,
    0–1, by which the objective may be worse for the sake of the policy's further aims, or of energy
    where it names none. ``points`` of the frontier, 0 for none.
    A scenario without a plan says why (``why_not``). Prices and errors are those of ``plan``, but
    prices that are too old make a scenario ``stale``.
    """
    check_count("points", points, low=0, high=MAX_POINTS)
    asked = check_policies(policies)
    terms = tuple(
        check_choice("capacity", each, TERMS) for each in check_words("capacity", capacity)
    )
    if not terms:
        raise bad_argument("capacity", "is empty", f"use one of {', '.join(TERMS)}")
    spans_s = check_spans_s("deadlines", deadlines)
    shares = tuple(tolerances)
    for share in shares:
        if check_number("tolerances", share) > 1.0:
            raise bad_argument("tolerances", f"has {share!r}", "pass shares from 0 to 1")
    allowed = check_restriction(provider, region, gpus)
    inputs = read_inputs((job,), asked, market, account, at, carbon, max_age_s, allowed)
    chosen, (task,) = inputs.policies, inputs.jobs
    jobs = [_due(task, span_s, inputs.seen.now) for span_s in spans_s] or [task]
    with noted(inputs.notes):
        scenarios = plan_scenarios(jobs, chosen, terms, inputs.seen, inputs.account, shares)
        found = (
            plan_frontier(task, chosen[0], inputs.seen, points, inputs.account) if points else ()
        )
        own = _own_plan(task, chosen[0], scenarios, inputs) if found else None
    drawn = FrontierResult(task, chosen[0], found, own, inputs.seen.now)
    return WhatIfResult(task, scenarios, drawn, (*inputs.notes, *forecast_notes(scenarios)))


def _own_plan(
    job: Job, policy: Policy, scenarios: Iterable[Scenario], inputs: PricedInputs
) -> Plan | None:
    """Return the policy's own plan, which may be among the scenarios."""
    for each in scenarios:
        if (each.job, each.policy, each.terms) == (job, policy, "policy"):
            return each.plan
    return plan_job(job, policy, inputs.seen, explain=False, account=inputs.account)


def _due(job: Job, deadline_s: float, now: datetime) -> Job:
    deadline_at = job.start_at + timedelta(seconds=deadline_s)
    if deadline_at <= max(now, job.start_at):
        problem = f"has a deadline in the past, {deadline_s:g} s after the start"
        raise bad_argument("deadlines", problem, "pass durations from the job's start")
    return replace(job, deadline_at=deadline_at)
