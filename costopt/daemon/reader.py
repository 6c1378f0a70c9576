"""What a caller may see of the daemon: everything, or one tenant's part.

Queries are answered from the last tick, from the registry or from the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice

from costopt.controller.node_logs import TaskLog, logged_node
from costopt.daemon.loop.recurring_jobs import Occurrence, upcoming_occurrences
from costopt.daemon.service import DaemonService, unknown_job_error
from costopt.daemon.shared_state import (
    Alert,
    BudgetUse,
    DecisionRow,
    FleetView,
    Health,
    JobStatus,
    MarketRow,
    MarketView,
)
from costopt.daemon.watch.cost_history import CostHistory
from costopt.domain.account import Tenant
from costopt.domain.control import DesiredState, Proposal, ProposalState, Submission
from costopt.domain.errors import SpecError
from costopt.domain.events import DecisionMade
from costopt.domain.ports import RecordedEvent
from costopt.ledger.job_account import JobAccount
from costopt.protocol.node_logs import LogChunk

MAX_MISSED_TICKS = 5.0
"""A daemon whose last tick is older than this many tick intervals is not alive."""
FIRST_TICK_S = 60.0


class TenantReader:
    """Reads for one caller, during one request. With a ``tenant`` nothing of other tenants is
    shown, counted or added up.

    Another tenant's job is as unknown as one that does not exist: it is searched among the tenant's
    own alone, so the response and its time are the same. Every method may raise LedgerError.
    """

    def __init__(self, service: DaemonService, tenant: str | None = None) -> None:
        self._service = service
        self._board = service.board
        self._registry = service.registry
        self._ledger = service.ledger
        self.tenant = tenant

    @property
    def whole(self) -> DaemonService | None:
        """Return the daemon with all tenants' data, or None if the caller may not see them."""
        return self._service if self.tenant is None else None

    def jobs(self) -> tuple[JobStatus, ...]:
        """Return every job that the caller's tenant ever submitted, in the order of submission."""
        return tuple(map(self._status, self._registry.submissions(tenant=self.tenant)))

    def job(self, name: str) -> JobStatus:
        """Return one of the caller's jobs. Raise SpecError if none has that name."""
        submission = self._registry.submission(name) if self._sees_job(name) else None
        if submission is None:
            raise unknown_job_error(name)
        return self._status(submission)

    def upcoming(self, limit: int) -> tuple[Occurrence, ...]:
        """Return the next occurrences of the caller's recurring jobs, the earliest first."""
        submissions = self._registry.submissions([DesiredState.RUN], self.tenant)
        return upcoming_occurrences(submissions, self._service.clock.now(), limit)

    def events(self, job: str, after: int = 0, limit: int = 1000) -> tuple[RecordedEvent, ...]:
        """Return at most ``limit`` events of a job after number ``after``. Raise SpecError."""
        self.job(job)
        return tuple(islice(self._ledger.events(job, after), limit))

    def decisions(self, job: str | None = None) -> Iterator[DecisionRow]:
        """Return the decisions of a job, newest first; without a job the last one of each.

        Raise SpecError if there is no such job.
        """
        if job is not None:
            self.job(job)
            return (DecisionRow(*made) for made in self._ledger.newest(DecisionMade, job))
        # The ledger may hold jobs that were never submitted to a daemon.
        last = self._ledger.last_of_each(DecisionMade)
        return (DecisionRow(seq, made) for seq, made in last if made.job in self._names)

    def decision(self, decision_id: str) -> DecisionRow:
        """Return one decision with its reasons. Raise SpecError if none has that id."""
        job = decision_id.rpartition("-d")[0]
        for seq, decision in self._ledger.newest(DecisionMade, job) if self._sees_job(job) else ():
            if decision.decision_id == decision_id:
                return DecisionRow(seq, decision)
        raise SpecError(f"there is no decision {decision_id!r}", hint="list those of its job")

    def fleet(self) -> FleetView:
        """Return the caller's living nodes at the last tick; orphans, which belong to no tenant,
        only to a caller who sees all tenants."""
        seen, service = self._board.snapshot, self._service
        nodes = tuple(node for node in seen.nodes if self._sees(node.tenant))
        usd = sum(node.usd_per_hour for node in nodes)
        orphans = self._board.orphans if self.tenant is None else ()
        return FleetView(
            seen.now, nodes, usd, service.mode(), self._registry.halted(), orphans
        )  # fmt: skip

    def budgets(self) -> tuple[BudgetUse, ...]:
        """Return what was spent of each limit on dollars, as of the last tick: the tenant's; those
        of the account, and of every tenant, only to a caller who sees all tenants."""
        every = self._board.snapshot.budgets
        return tuple(use for use in every if self.tenant in (None, use.tenant))

    def cost_history(self, statuses: Iterable[JobStatus], since: datetime) -> CostHistory:
        """Return what the caller's jobs among ``statuses`` cost per day, but for those that were
        over before ``since``."""
        own = (s for s in statuses if self._sees_job(s.submission.name))
        return self._service.costs.read(own, since)

    def market(self) -> MarketView:
        """Return the providers' offers at the last tick, which every caller may see."""
        seen = self._board.snapshot
        rows = []
        for offer in seen.offers:
            price = offer.price_usd_per_hour
            rows.append(MarketRow(offer, None if price is None else price.age_s(seen.now)))
        return MarketView(seen.now, tuple(rows), dict(seen.silent))

    def logs(self, job: str, node_id: str | None = None, after: int = 0) -> LogChunk:
        """Return a node's log from byte ``after`` on; without a node, that of the newest gang's
        first.

        Raise SpecError if there is no such job, node or log.
        """
        self.job(job)
        return self._service.logs.read(job, logged_node(self._ledger, job, node_id), after)

    def task_log(self, job: str, task: int) -> TaskLog:
        """Return what an array's task printed. Raise SpecError if it has no log so far."""
        self.job(job)
        return self._service.logs.read_task(job, task)

    def alerts(self, after: int = 0) -> tuple[Alert, ...]:
        """Return the alerts with a number above ``after``, oldest first; those of no job only to a
        caller who sees all tenants."""
        return tuple(each for each in self._board.alerts(after) if self._sees_job(each.job))

    def proposals(self, states: Iterable[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Return the daemon's proposals in these states, or all if none is named."""
        every = self._registry.proposals(tuple(states))
        return tuple(each for each in every if self._sees_job(each.job))

    def tenants(self) -> tuple[Tenant, ...]:
        """Return the tenants that the account names, by name."""
        tenants = self._service.account.tenants
        return tuple(tenants[name] for name in sorted(tenants) if self._sees(name))

    def health(self) -> Health:
        """Return whether the loop runs and whether the daemon can do its work. The reason why a
        tick failed, which may name any job, only to a caller who sees all tenants."""
        board, max_age_s = self._board, _max_tick_age_s(self._service)
        age_s, alive = board.tick_age_s, board.has_ended_tick and is_alive(self._service)
        succeeds = age_s is not None and age_s <= max_age_s
        problems = [] if succeeds else ["no tick has succeeded for a while"]
        if board.tick_failure:
            problems.append(board.tick_failure if self.tenant is None else "the last tick failed")
        silent = board.snapshot.silent
        problems += [f"{name} does not answer: {why}" for name, why in silent.items()]
        if not board.leads:
            problems.append("another daemon leads; this one stands by")
        ready = alive and succeeds and board.leads and not board.tick_failure
        return Health(alive, ready, tuple(problems), board.ticked_at, age_s, board.leads)

    def _status(self, submission: Submission) -> JobStatus:
        seen, name = self._board.snapshot, submission.name
        upcoming = upcoming_occurrences([submission], seen.now, 1)
        return JobStatus(
            submission,
            # No tick has seen it yet where there is no summary.
            seen.summaries.get(name) or JobAccount(name).summary(seen.now),
            seen.held.get(name, ""),
            seen.slacks.get(name),
            seen.decisions.get(name),
            seen.nodes_of.get(name, ()),
            upcoming[0].at if upcoming else None,
            self._board.forecasts.get(name),
        )

    def _sees(self, tenant: str) -> bool:
        return self.tenant in (None, tenant)

    def _sees_job(self, name: str) -> bool:
        return self.tenant is None or name in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(each.name for each in self._registry.submissions(tenant=self.tenant))


def is_alive(service: DaemonService) -> bool:
    """Return whether ticks come to an end, though they may fail; the first one may be under way."""
    return service.board.loop_age_s <= _max_tick_age_s(service)


def _max_tick_age_s(service: DaemonService) -> float:
    interval_s = service.settings.tick_s / getattr(service.clock, "speed", 1.0)
    return FIRST_TICK_S + MAX_MISSED_TICKS * interval_s
