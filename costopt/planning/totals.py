"""The totals of plans of several jobs, and of what-ifs over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product

from costopt.domain.account import Account
from costopt.domain.errors import StaleDataError
from costopt.domain.estimate import Estimate, sum_of_known
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.planning.many_jobs import AccountPlan, plan_account
from costopt.planning.quotes import QuoteSet
from costopt.planning.what_if import Capacity, narrow_policy


@dataclass(frozen=True, slots=True)
class AccountTotals:
    """Sums over the jobs that a plan serves; None is unknown.

    ``usd`` is what is expected, ``finish_at`` the latest median, ``on_time`` the probability of the
    job that is least sure.
    """

    jobs: int
    served: int
    usd: float | None = None
    kwh: float | None = None
    gco2e: float | None = None
    finish_at: datetime | None = None
    on_time: Estimate | None = None


def sum_plan(made: AccountPlan) -> AccountTotals:
    """Return the totals of the jobs that the plan serves."""
    known = [made.plan.forecast_of(job.name) for job in made.served]
    served = [forecast for forecast in known if forecast is not None]
    if not served:
        return AccountTotals(len(made.jobs), 0)
    return AccountTotals(
        jobs=len(made.jobs),
        served=len(served),
        usd=sum(each.usd_mean for each in served),
        kwh=sum_of_known(each.kwh for each in served),
        gco2e=sum_of_known(each.gco2e for each in served),
        finish_at=max(each.finish_p50_at for each in served),
        on_time=min((each.on_time for each in served), key=lambda likely: likely.low),
    )


@dataclass(frozen=True, slots=True)
class AccountScenario:
    """One policy, one span until the deadlines (None: each job's own) and one set of terms.

    ``made`` is None where the policy allows none of the terms or every price is too old
    (``stale``); ``why_not`` says which, or what keeps jobs from being served.
    """

    policy: Policy
    deadline_s: float | None
    terms: Capacity
    made: AccountPlan | None
    why_not: str | None = None
    stale: bool = False

    @property
    def totals(self) -> AccountTotals | None:
        """Return the totals of the jobs that are served, None where there is no plan."""
        return None if self.made is None else sum_plan(self.made)


def plan_account_scenarios(
    jobs: Sequence[Job],
    policies: Sequence[Policy],
    deadlines_s: Sequence[float],
    terms: Sequence[Capacity],
    seen: QuoteSet,
    account: Account,
) -> tuple[AccountScenario, ...]:
    """Return a scenario for each policy, span until the deadlines and name of terms, in this order.

    Spans count from each job's start. Raise SpecError for two jobs of one name.
    """
    varied = product(policies, deadlines_s or (None,), terms)
    return tuple(_plan_scenario(jobs, *each, seen, account) for each in varied)


def _plan_scenario(
    jobs: Sequence[Job],
    policy: Policy,
    deadline_s: float | None,
    terms: Capacity,
    seen: QuoteSet,
    account: Account,
) -> AccountScenario:
    narrowed = narrow_policy(policy, terms)
    if narrowed is None:
        why = f"the policy does not allow {terms}"
        return AccountScenario(policy, deadline_s, terms, None, why)
    if deadline_s is not None:
        span = timedelta(seconds=deadline_s)
        jobs = [replace(job, deadline_at=job.start_at + span) for job in jobs]
    try:
        made = plan_account(jobs, narrowed, seen, account, explain=False)
    except StaleDataError as error:
        return AccountScenario(policy, deadline_s, terms, None, error.message, stale=True)
    late = ", ".join(each.job for each in made.unserved)
    why_not = f"not served: {late}" if late else None
    return AccountScenario(policy, deadline_s, terms, made, why_not)
