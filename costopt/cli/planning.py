"""From a job, a policy and quotes to a plan that is shown, or to the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from costopt.cli.figures import moment
from costopt.cli.quotes import Quotes
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import InfeasibleError, StaleDataError
from costopt.domain.job import Job, Progress
from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.policy import Policy
from costopt.domain.transfer import transfers_of
from costopt.domain.view import JobView

if TYPE_CHECKING:
    from costopt.optimize.frontier import FrontierPoint
    from costopt.optimize.request import PlanRequest


def show_quoted_plan(
    job: Job,
    policy: Policy,
    seen: Quotes,
    output: str,
    *,
    top: int = 10,
    explain: bool = False,
    account: Account = UNLIMITED,
) -> None:
    """Write the plan to stdout.

    Raises InfeasibleError after that where there is none, StaleDataError where every price that
    the policy allows is too old.
    """
    from costopt.cli.output import show
    from costopt.cli.plan_table import plan_table

    made = plan_job(job, policy, seen, account=account)
    show(plan_table(made, job, policy, top, explain), output)
    _refuse(made, job)


def refuse_infeasible(job: Job, policy: Policy, seen: Quotes, account: Account = UNLIMITED) -> None:
    """Raise InfeasibleError where no plan on these quotes ends the job in time."""
    _refuse(plan_job(job, policy, seen, explain=False, account=account), job)


def plan_job(
    job: Job, policy: Policy, seen: Quotes, *, explain: bool = True, account: Account = UNLIMITED
) -> Plan:
    """The plan of a job that has not begun. Raises StaleDataError."""
    from costopt.optimize.planner import plan

    return plan(_request(job, policy, seen, account), explain=explain)


def frontier_of(
    job: Job, policy: Policy, seen: Quotes, points: int, account: Account = UNLIMITED
) -> tuple[FrontierPoint, ...]:
    """Plans that no other beats in dollars, kWh and finish, by ascending dollars.

    At most ``points``; empty where there is no plan, or no price is fresh.
    """
    from costopt.optimize.frontier import frontier

    try:
        return frontier(_request(job, policy, seen, account), points=points)
    except StaleDataError:
        return ()


def _refuse(made: Plan, job: Job) -> None:
    if made.status is PlanStatus.INFEASIBLE:
        due, binding = moment(job.deadline_at), made.binding or "for an unknown reason"
        why_not = "costopt plan --explain says of each offer why it is out"
        others = "costopt what-if shows which deadlines, policies and terms would do"
        raise InfeasibleError(
            f"no plan finishes {job.name} by {due}: {binding}",
            hint=why_not if binding.startswith("resources:") else others,
        )


def _request(job: Job, policy: Policy, seen: Quotes, account: Account) -> PlanRequest:
    from costopt.catalog import load_catalog
    from costopt.cli.forecasts import forecast_carbon, forecast_prices
    from costopt.energy import NodePowerModel
    from costopt.engine.rules import limits_now
    from costopt.market.screen import screen_offers
    from costopt.optimize.request import PlanRequest

    left_s = (job.deadline_at - seen.now).total_seconds()
    limits = limits_now(policy, queue_length=1, slack_s=left_s, now=seen.now)
    policy = replace(policy, limits=limits)
    known = load_catalog()
    model = NodePowerModel(known, policy.objective.carbon_signal)
    usable, rejections = screen_offers(seen.offers, policy, seen.now, check_age=not seen.listed)
    stale = [rejection for rejection in rejections if rejection.code == "price_stale"]
    if stale and not usable:
        raise StaleDataError(
            f"every price that the policy allows is too old: {stale[0].reason}",
            hint="use a newer market history, or raise limits.max_price_age in the policy",
        )
    pools = [offer.pool for offer in usable]
    return PlanRequest(
        now=seen.now,
        jobs=(JobView(job, Progress()),),
        offers=usable,
        machines={pool: machine for pool in pools if (machine := known.machine(pool))},
        powers={pool: power for pool in pools if (power := model.node_power(pool))},
        policy=policy,
        quotas=(*account.quotas, *seen.quotas),
        rejections=rejections,
        price_forecasts=forecast_prices(seen, pools, job.deadline_at),
        carbon_forecasts=forecast_carbon(seen, policy, pools, job.deadline_at).series,
        transfers=transfers_of((job,), pools, known.transfer),
        tenants=account.tenants,
    )
