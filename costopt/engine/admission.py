"""Admission: which jobs get capacity where there is not enough for all of them.

Tenants share by weighted dominant-resource fairness, the jobs of one tenant by priority and then by
what waiting would cost each. ``share_capacity`` is pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.market import Pool
from costopt.domain.view import Decision, JobView
from costopt.engine.cohort import JobTerms
from costopt.engine.guards import Guards
from costopt.engine.quotas import Limit
from costopt.engine.settings import EngineSettings
from costopt.engine.view_builder import CohortView
from costopt.strategies.shield import SHIELD

SHARE = "share"


class FairAdmission:
    """Holds back the jobs for which the account has no capacity; running ones are drained.

    Remembers which jobs were admitted last, so that a job whose turn has come keeps its place until
    its nodes run, and since when each tenant has been waiting: one that has waited longer than
    ``patience_s`` goes first.
    """

    def __init__(self, settings: EngineSettings, guards: Guards) -> None:
        self._settings = settings
        self._guards = guards
        self._quotas = guards.quotas
        self._waiting: dict[str, datetime] = {}
        self._admitted: frozenset[str] | None = None

    def admit(
        self,
        decisions: Sequence[Decision],
        sights: Sequence[CohortView],
        terms: Mapping[str, JobTerms],
        now: datetime,
    ) -> list[Decision]:
        """Return the decisions, with those of jobs that are held back replaced by waiting."""
        if self._settings.patience_s is None or not self._quotas.bind:
            return list(decisions)
        views = {jv.job.name: jv for sight in sights for jv in sight.view.jobs}
        prices = _prices(sights)
        wishes = [
            self._request(
                decision, views[decision.job], terms[decision.job].priority, prices, order
            )
            for order, decision in enumerate(decisions)
            if decision.targets
        ]
        held = share_capacity(wishes, self._quotas.most, self._overdue(now))
        self._note_waiting(wishes, held, now)
        self._admitted = frozenset(wish.job for wish in wishes if wish.job not in held)
        return [_held(d, held[d.job]) if d.job in held else d for d in decisions]

    def _request(
        self,
        decision: Decision,
        view: JobView,
        priority: int,
        prices: Mapping[Pool, float],
        order: int,
    ) -> ResourceRequest:
        tenants = self._guards.account.tenants
        tenant = tenants.get(view.job.tenant)
        load: dict[tuple[str, str], float] = {}
        for target in decision.targets:
            usd_per_hour = prices.get(target.pool, math.inf)
            for limit, amount in self._quotas.load(decision.job, target, usd_per_hour):
                load[limit] = load.get(limit, 0.0) + amount
        return ResourceRequest(
            job=decision.job,
            tenant=view.job.tenant,
            weight=1.0 if tenant is None else tenant.weight,
            priority=priority,
            runs=bool(view.nodes) if self._admitted is None else decision.job in self._admitted,
            order=order,
            load=load,
            wait_usd=math.inf if decision.rule == SHIELD else decision.wait_usd or 0.0,
        )

    def _overdue(self, now: datetime) -> frozenset[str]:
        patience = timedelta(seconds=self._settings.patience_s or 0.0)
        return frozenset(t for t, since in self._waiting.items() if now - since >= patience)

    def _note_waiting(
        self, wishes: Sequence[ResourceRequest], held: Mapping[str, str], now: datetime
    ) -> None:  # fmt: skip
        served = {wish.tenant for wish in wishes if wish.job not in held}
        waiting = {wish.tenant for wish in wishes} - served
        self._waiting = {tenant: self._waiting.get(tenant, now) for tenant in waiting}


def _prices(sights: Sequence[CohortView]) -> dict[Pool, float]:
    return {
        offer.pool: offer.price_usd_per_hour.value
        for sight in sights
        for offer in sight.view.offers
        if offer.price_usd_per_hour is not None
    }


def _held(decision: Decision, why: str) -> Decision:
    return replace(decision, targets=(), reason=why, rule=SHARE, alternatives=())


ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What a job requests: ``load`` by limit.

    ``wait_usd`` is what holding the job back until the next tick is expected to cost, infinite
    where it would be late; of jobs that do not say, all have 0. ``order`` breaks ties.
    """

    job: str
    tenant: str
    weight: float
    priority: int
    runs: bool
    order: int
    load: Mapping[Limit, float]
    wait_usd: float = 0.0


def share_capacity(
    wishes: Sequence[ResourceRequest], most: Mapping[Limit, float], overdue: frozenset[str]
) -> dict[str, str]:
    """Return the jobs that are held back, each with its reason; the others fit together.

    Jobs are served one after the other, each whole or not at all. The next one is always of the
    tenant with the least weighted dominant share: its largest part of any limit, over its weight
    (Ghodsi et al., Dominant Resource Fairness, NSDI 2011), ``overdue`` tenants before all others.
    Within a tenant higher priorities go first, then the jobs that waiting costs most: they have the
    least slack, or would give up the most savings or a start. Of equals those that run stay. A job
    that could never fit within a limit is not held here: the guards refuse it with their reason. A
    reason discloses nothing about other tenants.
    """
    used = dict.fromkeys(most, 0.0)
    if _fits(_sum(wishes), used, most) is None:
        return {}
    queues: dict[str, list[ResourceRequest]] = {}
    for wish in sorted(wishes, key=_rank):
        queues.setdefault(wish.tenant, []).append(wish)
    has: dict[str, dict[Limit, float]] = {tenant: {} for tenant in queues}
    held: dict[str, str] = {}
    while queues:
        tenant = min(queues, key=lambda t: _turn(t, queues[t][0], has[t], most, overdue))
        wish = queues[tenant].pop(0)
        if not queues[tenant]:
            del queues[tenant]
        full = _fits(wish.load, used, most)
        if full is None:
            for limit, amount in wish.load.items():
                used[limit] += amount
                has[tenant][limit] = has[tenant].get(limit, 0.0) + amount
        elif _fits(wish.load, {}, most) is None:
            name, unit = full
            held[wish.job] = (
                f"waits for capacity: quota {name} allows {most[full]:g} {unit} across all jobs "
                f"that share it; this job needs {wish.load[full]:g}"
            )
    return held


def _turn(
    tenant: str,
    first: ResourceRequest,
    has: Mapping[Limit, float],
    most: Mapping[Limit, float],
    overdue: frozenset[str],
) -> tuple[bool, float, bool, int, str]:
    dominant = max((amount / most[limit] for limit, amount in has.items()), default=0.0)
    late = tenant in overdue and not has
    return not late, dominant / first.weight, not first.runs, -first.priority, tenant


def _rank(wish: ResourceRequest) -> tuple[int, float, bool, int]:
    return -wish.priority, -wish.wait_usd, not wish.runs, wish.order


def _fits(
    load: Mapping[Limit, float], used: Mapping[Limit, float], most: Mapping[Limit, float]
) -> Limit | None:
    """Return the first limit that the load would exceed, or None."""
    for limit, amount in load.items():
        if used.get(limit, 0.0) + amount > most[limit] * (1 + ROUNDING):
            return limit
    return None


def _sum(wishes: Sequence[ResourceRequest]) -> dict[Limit, float]:
    total: dict[Limit, float] = {}
    for wish in wishes:
        for limit, amount in wish.load.items():
            total[limit] = total.get(limit, 0.0) + amount
    return total
