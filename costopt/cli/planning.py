"""From a job, a policy and quotes to a plan, or to a frontier of plans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from costopt.cli.quotes import QuoteSet
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import StaleDataError
from costopt.domain.job import Job
from costopt.domain.plan import Plan
from costopt.domain.policy import Policy

if TYPE_CHECKING:
    from costopt.optimize.frontier import FrontierPoint
    from costopt.optimize.request import PlanRequest


def plan_job(
    job: Job, policy: Policy, seen: QuoteSet, *, explain: bool = True, account: Account = UNLIMITED
) -> Plan:
    """The plan of a job that has not begun. Raises StaleDataError."""
    from costopt.optimize.planner import plan

    return plan(_request(job, policy, seen, account), explain=explain)


def plan_frontier(
    job: Job, policy: Policy, seen: QuoteSet, points: int, account: Account = UNLIMITED
) -> tuple[FrontierPoint, ...]:
    """Plans that no other beats in dollars, kWh and finish, by ascending dollars.

    At most ``points``; empty where there is no plan, or no price is fresh.
    """
    from costopt.optimize.frontier import frontier

    try:
        return frontier(_request(job, policy, seen, account), points=points)
    except StaleDataError:
        return ()


def _request(job: Job, policy: Policy, seen: QuoteSet, account: Account) -> PlanRequest:
    from costopt.cli.forecasts import forecast_carbon, forecast_prices
    from costopt.session.feasibility import build_request

    told = replace(account, quotas=(*account.quotas, *seen.quotas))
    request = build_request(job, policy, seen.offers, seen.now, told, check_age=not seen.listed)
    pools = [offer.pool for offer in request.offers]
    return replace(
        request,
        price_forecasts=forecast_prices(seen, pools, job.deadline_at),
        carbon_forecasts=forecast_carbon(seen, request.policy, pools, job.deadline_at).series,
    )
