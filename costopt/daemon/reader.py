"""The part of the daemon that a reader may see: everything, or one tenant's part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import islice

from costopt.daemon.cost_history import CostHistory
from costopt.daemon.recurring_jobs import Occurrence
from costopt.daemon.service import DaemonService, unknown_decision_error, unknown_job_error
from costopt.daemon.shared_state import (
    Alert,
    BudgetUse,
    DecisionRow,
    FleetView,
    Health,
    JobStatus,
    MarketView,
)
from costopt.domain.account import Tenant
from costopt.domain.control import Mode, Proposal, ProposalState
from costopt.domain.ports import RecordedEvent


class TenantReader:
    """Reads for one caller, during one request. With a ``tenant`` nothing of other tenants is
    shown, counted or added up.

    Another tenant's job is as unknown as one that does not exist: it is searched among the tenant's
    own alone, so the response and its time are the same. Every method may raise LedgerError.
    """

    def __init__(self, service: DaemonService, tenant: str | None = None) -> None:
        self._service = service
        self._tenant = tenant

    @property
    def tenant(self) -> str | None:
        """Return the tenant whose part is shown, None if all are."""
        return self._tenant

    @property
    def whole(self) -> DaemonService | None:
        """Return the daemon with all tenants' data, or None if the caller may not see them."""
        return self._service if self._tenant is None else None

    def jobs(self) -> tuple[JobStatus, ...]:
        """Return the caller's jobs, in the order of submission."""
        return self._service.jobs(self._tenant)

    def upcoming(self, limit: int) -> tuple[Occurrence, ...]:
        """Return the next occurrences of the caller's recurring jobs, the earliest first."""
        return self._service.upcoming(limit, self._tenant)

    def job(self, name: str) -> JobStatus:
        """Return one of the caller's jobs. Raise SpecError if none has that name."""
        if not self._sees_job(name):
            raise unknown_job_error(name)
        return self._service.job(name)

    def events(self, job: str, after: int = 0, limit: int = 1000) -> tuple[RecordedEvent, ...]:
        """Return at most ``limit`` events of a job after number ``after``. Raise SpecError."""
        self.job(job)
        return self._service.events(job, after, limit)

    def decisions(self, job: str | None = None, limit: int = 100) -> tuple[DecisionRow, ...]:
        """Return the first so many of ``each_decision``. Raise SpecError."""
        return tuple(islice(self.each_decision(job), limit))

    def each_decision(self, job: str | None = None) -> Iterator[DecisionRow]:
        """Return the decisions of a job, or the last of each job; the newest first.

        Raise SpecError if there is no such job.
        """
        if job is not None:
            self.job(job)
        rows = self._service.each_decision(job)
        return (row for row in rows if self._sees_job(row.decision.job))

    def decision(self, decision_id: str) -> DecisionRow:
        """Return one decision with its reasons. Raise SpecError if none has that id."""
        job = decision_id.rpartition("-d")[0]
        if not self._sees_job(job):
            raise unknown_decision_error(decision_id)
        return self._service.decision(decision_id)

    def fleet(self) -> FleetView:
        """Return the caller's living nodes at the last tick; orphans, which belong to no tenant,
        only to a caller who sees all tenants."""
        fleet = self._service.fleet()
        if self._tenant is None:
            return fleet
        nodes = tuple(node for node in fleet.nodes if self._sees(node.tenant))
        usd = sum(node.usd_per_hour for node in nodes)
        return replace(fleet, nodes=nodes, usd_per_hour=usd, orphans=())

    def budgets(self) -> tuple[BudgetUse, ...]:
        """Return the tenant's spent and limited dollars; those of the account, and of every tenant,
        only to a caller who sees all tenants."""
        every = self._service.budgets()
        return tuple(use for use in every if self._tenant in (None, use.tenant))

    def cost_history(self, statuses: Iterable[JobStatus], since: datetime) -> CostHistory:
        """Return what the caller's jobs among ``statuses`` cost per day, but for those that were
        over before ``since``."""
        own = (s for s in statuses if self._sees_job(s.submission.name))
        return self._service.cost_history(own, since)

    def market(self) -> MarketView:
        """Return the providers' offers, which every caller may see."""
        return self._service.market()

    def alerts(self, after: int = 0) -> tuple[Alert, ...]:
        """Return alerts, oldest first; those of no job only to a caller who sees all tenants."""
        return tuple(a for a in self._service.alerts(after) if self._sees_job(a.job))

    def proposals(self, states: Iterable[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Return the daemon's proposals in these states, or all if none is named."""
        return tuple(p for p in self._service.proposals(states) if self._sees_job(p.job))

    def tenants(self) -> tuple[Tenant, ...]:
        """Return the tenants that the account names, by name."""
        tenants = self._service.account_limits().tenants
        return tuple(tenants[name] for name in sorted(tenants) if self._sees(name))

    def health(self) -> Health:
        """Return whether the loop runs; why a tick failed only to a caller who sees all tenants."""
        return self._service.health(of_all=self._tenant is None)

    def mode(self) -> Mode:
        """Return the daemon's mode."""
        return self._service.mode()

    def _sees(self, tenant: str) -> bool:
        return self._tenant in (None, tenant)

    def _sees_job(self, name: str) -> bool:
        return self._tenant is None or name in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(status.submission.name for status in self.jobs())
