"""The request to the optimizer: jobs, offers, the policy and the other inputs of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from costopt.domain.account import Account, Quota, Tenant
from costopt.domain.estimate import Series
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.notices import NoticePeriod, no_notice
from costopt.domain.plan import Rejection
from costopt.domain.policy import Objective, Policy
from costopt.domain.power import NodePower
from costopt.domain.transfers import Transfer
from costopt.domain.view import JobView, View

__all__ = ["Ceiling", "PlanRequest", "Quota", "build_request"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that the plan of all jobs may come to when it is scored by ``weights``."""

    weights: Objective
    most: float


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Jobs, the present market, and the policy.

    ``offers`` may hold unusable ones: the planner screens them for everything but the age of
    their prices, which the caller checks; ``rejections`` are the caller's own and are
    passed on in the plan. ``slot_s`` is the slot length where jobs compete for capacity, None to
    let the planner choose. ``price_forecasts`` are dollars per node-hour by pool, the present price
    where there is none; ``carbon_forecasts`` g/kWh by "provider/region". ``transfers`` are by
    ("provider/region" from, "provider/region" to). ``tenants`` are by name. ``ceilings`` hold
    besides the policy's limits. ``notice_s`` is the notice of an interruption, by pool; a
    decision is in force for ``tick_s``.
    """

    now: datetime
    jobs: tuple[JobView, ...]
    offers: tuple[Offer, ...]
    machines: Mapping[Pool, InstanceType]
    powers: Mapping[Pool, NodePower]
    policy: Policy
    quotas: tuple[Quota, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    slot_s: float | None = None
    price_forecasts: Mapping[Pool, Series] = field(default_factory=dict)
    carbon_forecasts: Mapping[str, Series] = field(default_factory=dict)
    transfers: Mapping[tuple[str, str], Transfer] = field(default_factory=dict)
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    ceilings: tuple[Ceiling, ...] = ()
    notice_s: NoticePeriod = no_notice
    tick_s: float = 0.0


def build_request(view: View) -> PlanRequest:
    """Return the request for all jobs and offers in ``view``.

    The account's guards on concurrent use and its commitments count as quotas.
    """
    account = view.account
    return PlanRequest(
        now=view.now,
        jobs=view.jobs,
        offers=view.offers,
        machines=view.machines,
        powers=view.powers,
        policy=view.policy,
        quotas=(
            *account.quotas,
            *account.commitment_quotas,
            *Account(guards=account.guards).limits,
        ),
        rejections=view.rejections,
        price_forecasts=view.price_forecasts,
        carbon_forecasts=view.carbon_forecasts,
        transfers=view.transfers,
        tenants=account.tenants,
        notice_s=view.notice_s,
        tick_s=view.tick_s,
    )
