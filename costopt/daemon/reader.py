"""What one who looks at the daemon may see of it: everything, or one tenant's part."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from costopt.daemon.service import DaemonService, unknown_decision_error, unknown_job_error
from costopt.daemon.shared_state import Alert, DecisionRow, FleetView, Health, JobStatus, MarketView
from costopt.domain.account import Tenant
from costopt.domain.control import Mode, Proposal, ProposalState
from costopt.domain.ports import RecordedEvent


class TenantReader:
    """One who looks, once. With a ``tenant`` nothing of others is told, counted or added up.

    Another tenant's job is as unknown as one that is not there: it is looked for among theirs
    alone, so it gets the same words after the same time. Every method may raise LedgerError.
    """

    def __init__(self, service: DaemonService, tenant: str | None = None) -> None:
        self._service = service
        self._tenant = tenant

    @property
    def whole(self) -> DaemonService | None:
        """The daemon with what tells of all tenants, None where that is not theirs to see."""
        return self._service if self._tenant is None else None

    def jobs(self) -> tuple[JobStatus, ...]:
        """Theirs, in the order of submission."""
        return self._service.jobs(self._tenant)

    def job(self, name: str) -> JobStatus:
        """One of theirs. Raises SpecError where there is none of that name."""
        if not self._sees_job(name):
            raise unknown_job_error(name)
        return self._service.job(name)

    def events(self, job: str, after: int = 0, limit: int = 1000) -> tuple[RecordedEvent, ...]:
        """At most ``limit`` events of a job that follow number ``after``. Raises SpecError."""
        self.job(job)
        return self._service.events(job, after, limit)

    def decisions(self, job: str | None = None, limit: int = 100) -> tuple[DecisionRow, ...]:
        """The newest decisions of a job, without one the last of each; the newest first.

        Raises SpecError.
        """
        if job is not None:
            self.job(job)
            return self._service.decisions(job, limit)
        rows = self._service.decisions(limit=sys.maxsize)
        return tuple(row for row in rows if self._sees_job(row.decision.job))[:limit]

    def decision(self, decision_id: str) -> DecisionRow:
        """One decision with its reasons. Raises SpecError where there is none of that id."""
        job = decision_id.rpartition("-d")[0]
        if not self._sees_job(job):
            raise unknown_decision_error(decision_id)
        return self._service.decision(decision_id)

    def fleet(self) -> FleetView:
        """Their living nodes at the last tick; orphans, which are nobody's, only with the rest."""
        fleet = self._service.fleet()
        if self._tenant is None:
            return fleet
        nodes = tuple(node for node in fleet.nodes if self._sees(node.tenant))
        usd = sum(node.usd_per_hour for node in nodes)
        return replace(fleet, nodes=nodes, usd_per_hour=usd, orphans=())

    def market(self) -> MarketView:
        """What the providers sell, which is no secret."""
        return self._service.market()

    def alerts(self, after: int = 0) -> tuple[Alert, ...]:
        """What a person should hear of, oldest first; what is of no job only with the rest."""
        return tuple(a for a in self._service.alerts(after) if self._sees_job(a.job))

    def proposals(self, states: Iterable[ProposalState] = ()) -> tuple[Proposal, ...]:
        """What the daemon asked for; all where no state is named."""
        return tuple(p for p in self._service.proposals(states) if self._sees_job(p.job))

    def tenants(self) -> tuple[Tenant, ...]:
        """Those that the account names, by name."""
        tenants = self._service.account_limits().tenants
        return tuple(tenants[name] for name in sorted(tenants) if self._sees(name))

    def health(self) -> Health:
        """Whether the loop goes on; why a tick failed only with the rest."""
        return self._service.health(of_all=self._tenant is None)

    def mode(self) -> Mode:
        """How far the daemon goes by itself."""
        return self._service.mode()

    def _sees(self, tenant: str) -> bool:
        return self._tenant in (None, tenant)

    def _sees_job(self, name: str) -> bool:
        return self._tenant is None or name in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(status.submission.name for status in self.jobs())
