"""Whether a job that has not begun can end in time on a market, and the words that say it not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from costopt.catalog import load_catalog
from costopt.domain.account import Account
from costopt.domain.errors import InfeasibleError, StaleDataError
from costopt.domain.job import Job, Progress
from costopt.domain.market import Offer
from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.policy import Policy
from costopt.domain.transfer import transfer_table
from costopt.domain.view import JobView
from costopt.energy import NodePowerModel
from costopt.engine.rules import effective_limits
from costopt.market.screen import screen_offers
from costopt.optimize.request import PlanRequest


def build_request(
    job: Job,
    policy: Policy,
    offers: Sequence[Offer],
    now: datetime,
    account: Account,
    *,
    check_age: bool = True,
) -> PlanRequest:
    """What the optimizer is asked of a job alone, within the account's quotas and guards.

    Raises StaleDataError where every price that the policy allows is too old.
    """
    left_s = (job.deadline_at - now).total_seconds()
    policy = replace(
        policy, limits=effective_limits(policy, queue_length=1, slack_s=left_s, now=now)
    )
    known = load_catalog()
    model, signal = NodePowerModel(known), policy.objective.carbon_signal
    usable, rejections = screen_offers(offers, policy, now, check_age=check_age)
    stale = [rejection for rejection in rejections if rejection.code == "price_stale"]
    if stale and not usable:
        raise StaleDataError(
            f"every price that the policy allows is too old: {stale[0].reason}",
            hint="use a newer market history, or raise limits.max_price_age in the policy",
        )
    pools = [offer.pool for offer in usable]
    return PlanRequest(
        now=now,
        jobs=(JobView(job, Progress()),),
        offers=usable,
        machines={pool: machine for pool in pools if (machine := known.instance_type(pool))},
        powers={pool: power for pool in pools if (power := model.node_power(pool, signal))},
        policy=policy,
        quotas=(*account.quotas, *Account(guards=account.guards).limits),
        rejections=rejections,
        transfers=transfer_table((job,), pools, known.transfer),
        tenants=account.tenants,
    )


def raise_if_infeasible(made: Plan, job: Job) -> None:
    """Raise InfeasibleError, naming what binds, where the plan does not end the job in time."""
    if made.status is PlanStatus.INFEASIBLE:
        due, binding = job.deadline_at.astimezone(UTC), made.binding or "for an unknown reason"
        why_not = "costopt plan --explain says of each offer why it is out"
        others = "costopt what-if shows which deadlines, policies and terms would do"
        raise InfeasibleError(
            f"no plan finishes {job.name} by {due:%Y-%m-%d %H:%MZ}: {binding}",
            hint=why_not if binding.startswith("resources:") else others,
            code="infeasible",
        )
