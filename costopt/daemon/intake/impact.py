"""What a new job would change for the jobs that run now: plans without and with it, side by side.

Jobs under the new job's policy are planned together, from their present progress and nodes. What
the nodes of all other jobs hold of the account's quotas is taken from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from costopt.domain.account import Account, Quota
from costopt.domain.estimate import Estimate
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.limits import Resource
from costopt.domain.market import Pool
from costopt.domain.plan import Forecast, Plan
from costopt.domain.policy import Policy
from costopt.domain.power import NodePower
from costopt.domain.progress import Progress
from costopt.domain.transfers import transfer_table, with_root_volumes
from costopt.domain.view import JobView, View
from costopt.optimize.planner import Forecaster
from costopt.optimize.request import PlanRequest, build_request
from costopt.planning.many_jobs import AccountPlan, plan_request

if TYPE_CHECKING:
    from costopt.catalog import Catalog

PLAN_S = 5.0
"""Seconds for each of the two plans."""


@dataclass(frozen=True, slots=True)
class PlannedFigures:
    """What is expected of a job from now on; the finish is the median."""

    usd: float
    kwh: float | None
    finish_at: datetime
    on_time: Estimate

    @classmethod
    def of(cls, forecast: Forecast | None) -> PlannedFigures | None:
        """Return the figures of a forecast, None where there is none."""
        if forecast is None:
            return None
        return cls(forecast.usd_mean, forecast.kwh, forecast.finish_p50_at, forecast.on_time)


@dataclass(frozen=True, slots=True)
class JobImpact:
    """A job without and with the new one; ``is_new``: it is the new one, which has no ``before``.

    Figures are None where a plan does not serve the job: ``why`` then says why it would not be
    served beside the new one, and ``remedies`` what would serve it.
    """

    job: str
    tenant: str
    is_new: bool
    served: bool
    before: PlannedFigures | None
    after: PlannedFigures | None
    why: str = ""
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImpactResult:
    """The jobs under one policy with the new ``job``; ``apart`` counts the nodes of the others that
    the caller may see, which keep what they hold."""

    job: str
    policy: str
    now: datetime
    jobs: tuple[JobImpact, ...]
    apart: int


def plan_impact(
    job: Job,
    policy: Policy,
    base: View,
    running: Sequence[View],
    catalog: Catalog,
    tenant: str | None = None,
    forecaster: Forecaster | None = None,
) -> ImpactResult:
    """Return what the new job changes; ``base`` is the view of it alone, without other jobs.

    With a ``tenant`` only its jobs are planned and shown, and no reason names what others hold.
    """
    own = [view for view in running if _is_alike(view.policy, policy)]
    joint = [each for view in own for each in view.jobs if tenant in (None, each.job.tenant)]
    names = {each.job.name for each in joint}
    others = [
        (each, node)
        for view in running
        for each in view.jobs
        if each.job.name not in names
        for node in each.nodes
    ]
    request = _request(base, own, joint, others, catalog)
    planned = partial(plan_request, policy=policy, time_limit_s=PLAN_S, forecaster=forecaster)
    before = planned(request, explain=False) if joint else None
    with_new = replace(request, jobs=(*request.jobs, JobView(job, Progress())))
    after = planned(with_new, explain=tenant is None)
    rows = tuple(_impacts(job, before, after, named=tenant is None))
    apart = sum(tenant in (None, each.job.tenant) for each, _ in others)
    return ImpactResult(job.name, policy.name, base.now, rows, apart)


def _is_alike(one: Policy, other: Policy) -> bool:
    """Whether two policies are the same but for limits, which rules may have tightened."""
    return replace(one, limits=other.limits) == other


def _request(
    base: View,
    own: Sequence[View],
    joint: Sequence[JobView],
    others: Sequence[tuple[JobView, Node]],
    catalog: Catalog,
) -> PlanRequest:
    offers = {offer.pool: offer for view in (base, *own) for offer in view.offers}
    views = (base, *own)
    view = replace(
        own[0] if own else base,
        jobs=tuple(joint),
        offers=tuple(offers.values()),
        policy=base.policy,
        machines={pool: machine for each in views for pool, machine in each.machines.items()},
        powers={pool: power for each in views for pool, power in each.powers.items()},
        transfers=transfer_table(
            [each.job for each in (*base.jobs, *joint)],
            offers,
            with_root_volumes(catalog.transfer, base.account.providers),
        ),
        account=base.account,
    )
    request = build_request(view)
    everywhere = Account(request.quotas, request.tenants).limits
    powers = {pool: power for each in views for pool, power in each.powers.items()}
    free = tuple(_free(quota, others, catalog, powers) for quota in everywhere)
    # What tenants may hold at a time is among these quotas.
    tenants = {
        name: replace(tenant, max_nodes=None, max_usd_per_hour=None)
        for name, tenant in request.tenants.items()
    }
    return replace(request, quotas=free, tenants=tenants)


def _free(
    quota: Quota,
    others: Iterable[tuple[JobView, Node]],
    catalog: Catalog,
    powers: dict[Pool, NodePower],
) -> Quota:
    """The quota less what the nodes of other jobs hold of it."""
    left: dict[str, Any] = {}
    for resource, most in quota.limits():
        held = 0.0
        for each, node in others:
            machine = catalog.instance_type(node.pool)
            counted = quota.tenant in (None, each.job.tenant) and machine is not None
            if counted and machine is not None and quota.matches(node.pool, machine):
                held += _node_load(quota, resource, node, catalog, powers)
        left[resource.field] = max(0.0, most - held)
    return replace(quota, **left)


def _node_load(
    quota: Quota, resource: Resource, node: Node, catalog: Catalog, powers: dict[Pool, NodePower]
) -> float:
    if resource is Resource.USD_PER_HOUR:
        return node.usd_per_hour
    if resource is Resource.KW:
        power = powers.get(node.pool)
        return 0.0 if power is None else power.busy_w * power.pue / 1000
    return quota.node_load(resource, node.pool, catalog.instance_type(node.pool))


def _comparable(job: str, plans: Sequence[Plan]) -> Callable[[Plan], Forecast | None]:
    """Return what gives the forecasts of a job in these plans: as it will be run, if all of them
    know that, else as if they were followed."""
    run = all(job in dict(made.proposals) for made in plans)

    def forecast(made: Plan) -> Forecast | None:
        return made.forecast_of(job) if run else made.proposal_of(job)

    return forecast


def _impacts(
    new: Job, before: AccountPlan | None, after: AccountPlan, *, named: bool
) -> Iterator[JobImpact]:
    unserved = {each.job: each for each in after.unserved}
    for job in after.jobs:
        late = unserved.get(job.name)
        plans = [each.plan for each in (before, after) if each and job in each.jobs]
        forecast = _comparable(job.name, plans)
        yield JobImpact(
            job=job.name,
            tenant=job.tenant,
            is_new=job.name == new.name,
            served=late is None,
            before=PlannedFigures.of(forecast(before.plan)) if before else None,
            after=None if late else PlannedFigures.of(forecast(after.plan)),
            why="" if late is None else late.why if named else "too little is free beside the rest",
            remedies=late.remedies if late and named else (),
        )
