"""Who gets room where there is not enough for all: tenants by weight, their jobs by priority."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.market import Pool
from costopt.domain.view import Decision, JobView
from costopt.engine.cohort import JobTerms
from costopt.engine.guards import Guards
from costopt.engine.outlook import CohortView
from costopt.engine.settings import EngineSettings
from costopt.engine.sharing import ResourceRequest, share_capacity

SHARE = "share"


class FairAdmission:
    """Holds back the jobs for which the account has no room; those that run are drained.

    Remembers who had room the last time, so that a job whose turn has come keeps it until its
    nodes are there, and since when each tenant waits: one that waits longer than ``patience_s``
    goes first.
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
        """The decisions, with those of jobs that are held back replaced by waiting."""
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
