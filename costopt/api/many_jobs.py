"""Plans and what-ifs of several jobs that share an account."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from costopt.api.inputs import (
    JOB_HINT,
    JobSource,
    Market,
    Span,
    StrPath,
    as_tuple,
    bad_argument,
    check_choice,
    check_policies,
    check_policy,
    check_spans_s,
    check_words,
)
from costopt.api.priced_inputs import PricedInputs, check_restriction, noted, read_inputs
from costopt.controller.checkpoint_places import check_distinct_places
from costopt.domain.account import Account
from costopt.domain.job import Job
from costopt.domain.plan import Constraint, Plan
from costopt.domain.policy import Policy
from costopt.planning.account_bill import bill_notes
from costopt.planning.many_jobs import AccountPlan, UnservedJob, check_names, plan_account
from costopt.planning.totals import AccountScenario, AccountTotals, plan_account_scenarios, sum_plan
from costopt.planning.what_if import TERMS, Capacity
from costopt.render.table import Table
from costopt.render.tabular import Tabular

if TYPE_CHECKING:
    from pandas import DataFrame

    from costopt.frames import AccountPlanFrame


@dataclass(frozen=True, slots=True, repr=False)
class AccountPlanResult(Tabular):
    """The plan of several jobs together.

    ``notes`` are sentences on the prices that it rests on. Dollars are USD, instants aware UTC,
    energy kWh at the data centre's meter; None is unknown.
    """

    made: AccountPlan
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """Return the plan: forecasts by job, allocations, and constraints with who holds them."""
        return self.made.plan

    @property
    def is_feasible(self) -> bool:
        """Return whether every job can end in time."""
        return not self.made.unserved

    @property
    def unserved(self) -> tuple[UnservedJob, ...]:
        """Return the jobs that are not served: why, and what would serve them."""
        return self.made.unserved

    @property
    def limits(self) -> tuple[Constraint, ...]:
        """Return the limits that jobs hold something of, with shadow prices and who pays them."""
        return tuple(each for each in self.plan.constraints if each.uses)

    @property
    def totals(self) -> AccountTotals:
        """Return the sums over the jobs that are served."""
        return sum_plan(self.made)

    def to_frame(self, what: AccountPlanFrame = "jobs") -> DataFrame:
        """Return one row per job, limit, use of a limit or allocation.

        Raise MissingExtraError without pandas.
        """
        from costopt.frames import ACCOUNT_PLAN_FRAMES, account_plan_frame

        return account_plan_frame(self.table(), check_choice("what", what, ACCOUNT_PLAN_FRAMES))

    def table(self) -> Table:
        """Return the table of the jobs, and below it that of the limits."""
        from costopt.views.account import account_table

        return account_table(self.made, options=False)


@dataclass(frozen=True, slots=True, repr=False)
class AccountWhatIfResult(Tabular):
    """Scenarios by policy, deadline and capacity, each a plan of all jobs together."""

    jobs: tuple[Job, ...]
    scenarios: tuple[AccountScenario, ...]
    notes: tuple[str, ...] = ()

    def to_frame(self) -> DataFrame:
        """Return one row of totals per scenario. Raise MissingExtraError without pandas."""
        from costopt.frames import table_frame

        return table_frame(self.table())

    def table(self) -> Table:
        """Return the table of the totals."""
        from costopt.views.account import account_what_if_table

        return account_what_if_table(len(self.jobs), self.scenarios)


def plan_jobs(
    jobs: Iterable[JobSource],
    policy: Policy | StrPath = "cheapest",
    *,
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
) -> AccountPlanResult:
    """Return the plan of several jobs that share the account's quotas and the policy's limits.

    Jobs that cannot be served are named with the reason, and with ``explain`` with what would serve
    them. Arguments and errors are those of ``plan``; two jobs of one name, or of one checkpoint
    place, are a SpecError.
    """
    from costopt.planning.forecast.replay_forecast import replay_notes

    asked, named = (check_policy(policy),), _check_some(jobs)
    allowed = check_restriction(provider, region, gpus, capacity)
    inputs = read_inputs(named, asked, market, account, at, carbon, max_age_s, allowed)
    _check_apart(inputs)
    (chosen,) = inputs.policies
    with noted(inputs.notes):
        made = plan_account(inputs.jobs, chosen, inputs.seen, inputs.account, explain=explain)
    from_replays = replay_notes(chosen, (made.plan,))
    of_bill = bill_notes(made.plan.allocations, inputs.seen, inputs.account)
    return AccountPlanResult(made, (*inputs.notes, *of_bill, *from_replays))


def what_if_jobs(
    jobs: Iterable[JobSource],
    policies: Policy | StrPath | Iterable[Policy | StrPath],
    *,
    deadlines: Span | Iterable[Span] = (),
    capacity: Capacity | Iterable[Capacity] = "policy",
    market: Market | StrPath | None = None,
    account: Account | StrPath | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    gpus: str | None = None,
    at: datetime | None = None,
    carbon: StrPath | None = None,
    max_age_s: float | None = None,
) -> AccountWhatIfResult:
    """Return the totals of all jobs for each policy, deadline and choice of capacity, in this
    order.

    ``deadlines`` are durations from each job's start (default: each job's own deadline). Other
    arguments and errors are those of ``what_if``.
    """
    asked, named = check_policies(policies), _check_some(jobs)
    terms = tuple(
        check_choice("capacity", each, TERMS) for each in check_words("capacity", capacity)
    )
    if not terms:
        raise bad_argument("capacity", "is empty", f"use one of {', '.join(TERMS)}")
    spans_s = check_spans_s("deadlines", deadlines, low=1.0)
    allowed = check_restriction(provider, region, gpus)
    inputs = read_inputs(named, asked, market, account, at, carbon, max_age_s, allowed)
    _check_apart(inputs)
    with noted(inputs.notes):
        scenarios = plan_account_scenarios(
            inputs.jobs, inputs.policies, spans_s, terms, inputs.seen, inputs.account
        )
    return AccountWhatIfResult(inputs.jobs, scenarios, inputs.notes)


def _check_some(jobs: object) -> tuple[object, ...]:
    found = as_tuple(jobs)
    if not found:
        raise bad_argument("jobs", "is empty", JOB_HINT)
    return found


def _check_apart(inputs: PricedInputs) -> None:
    """Raise SpecError for a name given twice, and for two jobs that have one checkpoint place."""
    check_names(inputs.jobs)
    check_distinct_places(inputs.jobs, inputs.account.store)
