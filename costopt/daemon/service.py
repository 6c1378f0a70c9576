"""The operations on a running daemon, in process; the API and the pages call these.

Every method may be called from any thread at any time and, except ``verdict`` and ``impact``,
returns at once: a command is written to the registry and carried out by the next tick, a query is
answered from the last tick or from the ledger. Every method may raise LedgerError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from threading import Lock

from costopt.controller.node_logs import LogReader, TaskLog, logged_node
from costopt.daemon.admission import (
    AdmissionPlanner,
    AdmissionResult,
    AdmittedJob,
    load_submission,
    parse_submission,
)
from costopt.daemon.alert_kinds import AlertKind
from costopt.daemon.cost_history import CostHistory, CostReader
from costopt.daemon.forecasts import LearnedForecasters
from costopt.daemon.impact import ImpactResult
from costopt.daemon.metrics_snapshot import collect_metrics
from costopt.daemon.open_jobs import check_open_jobs
from costopt.daemon.place_admission import PlaceAdmission
from costopt.daemon.recurring_jobs import Occurrence, upcoming_occurrences
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import (
    Alert,
    BudgetUse,
    DecisionRow,
    FleetView,
    Health,
    JobStatus,
    MarketRow,
    MarketView,
    MetricsSnapshot,
    SharedState,
)
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.control import (
    AuditEntry,
    DesiredState,
    Halt,
    Mode,
    Proposal,
    ProposalState,
    Registry,
    Submission,
)
from costopt.domain.errors import SpecError
from costopt.domain.events import DecisionMade, GangFormed
from costopt.domain.job import Job
from costopt.domain.object_store import ObjectStore
from costopt.domain.ports import Clock, EventIndex, RecordedEvent
from costopt.ledger.job_account import JobAccount
from costopt.ledger.summary import JobState, JobSummary
from costopt.protocol.node_logs import LogChunk
from costopt.spec.schedule import parse_schedule

MAX_MISSED_TICKS = 5.0
"""A daemon whose last tick is older than this many tick intervals is not alive."""
FIRST_TICK_S = 60.0


class DaemonService:
    """The daemon's operations and state."""

    def __init__(
        self, registry: Registry, ledger: EventIndex, clock: Clock, board: SharedState,
        settings: DaemonSettings, logs: LogReader, account: Account = UNLIMITED,
        check_secrets: Callable[[Job], None] | None = None,
        prepare_job: Callable[[Job], Job] = lambda job: job,
        forecasters: LearnedForecasters | None = None,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._ledger = ledger
        self._clock = clock
        self._board = board
        self._settings = settings
        self._logs = logs
        self._account = account
        self._check_secrets = check_secrets
        self._judge = AdmissionPlanner(board, account, forecasters)
        self._submitting = Lock()
        self._places = PlaceAdmission(registry, board, prepare_job, account.owner)
        self._costs = CostReader(ledger)

    def submit(self, submission: Submission) -> Submission:
        """Accept a job; a tick that comes soon starts it. Raise SpecError if the name is taken, if
        its nodes could not read a secret, or if its checkpoint place is another job's. Raise
        GuardTrippedError if its tenant has too many open jobs."""
        job = self.admitted(submission).job
        if self._check_secrets is not None:
            self._check_secrets(job)
        is_recurring = parse_schedule(submission.job_document) is not None
        with self._submitting:
            check_open_jobs(self._account, self._registry, self._board, submission.tenant)
            self._places.check(job, recurring=is_recurring)
            self._registry.submit(submission)
        self._board.is_awaited.set()
        return submission

    def admitted(self, submission: Submission) -> AdmittedJob:
        """Return the job and policy of a submission. Raise SpecError, also if the job names places
        that are not its tenant's."""
        return load_submission(submission, self._account)

    def verdict(self, submission: Submission) -> AdmissionResult:
        """Return whether the job can meet its deadline; takes seconds. Raise InfeasibleError,
        SpecError."""
        known = self.admitted(submission)
        return self._judge.check(known.job, known.policy)

    def impact(self, submission: Submission, tenant: str | None = None) -> ImpactResult:
        """Return what the job would change for those that run now, of this tenant if it is named;
        takes seconds. Nothing is submitted. Raise InfeasibleError, SpecError, StaleDataError."""
        known = self.admitted(submission)
        return self._judge.impact(known.job, known.policy, tenant)

    def read(
        self, job_document: str, policy_document: str, *, workdir: str, who: str, priority: int = 0
    ) -> Submission:
        """Return a checked submission.

        ``job_document`` is the YAML text of a job, ``policy_document`` that of a policy, or the
        name of a shipped one. Relative paths of the job count from ``workdir``, a folder that the
        daemon can read. Raise SpecFileError with every problem, or SpecError.
        """
        now = self._clock.now()
        return parse_submission(job_document, policy_document, workdir, who, priority, now)

    def jobs(self, tenant: str | None = None) -> tuple[JobStatus, ...]:
        """Return every job ever submitted, in the order of submission; those of one tenant if it is
        named."""
        return tuple(self._status(s) for s in self._registry.submissions(tenant=tenant))

    def job(self, name: str) -> JobStatus:
        """Return one job. Raise SpecError if none has that name."""
        return self._status(self._known(name))

    def upcoming(self, limit: int, tenant: str | None = None) -> tuple[Occurrence, ...]:
        """Return the next occurrences of recurring jobs, the earliest first; those of one tenant if
        it is named."""
        submissions = self._registry.submissions([DesiredState.RUN], tenant)
        return upcoming_occurrences(submissions, self._clock.now(), limit)

    def pause(self, name: str, who: str) -> Submission:
        """Checkpoint, release the nodes, and keep the job for later.

        Raise SpecError, also for a job that has finished.
        """
        return self._intend(name, DesiredState.PAUSED, who)

    def resume(self, name: str, who: str) -> Submission:
        """Resume a paused job, or one that a guard stopped.

        Raise SpecError, also for a job that has finished.
        """
        return self._intend(name, DesiredState.RUN, who)

    def cancel(self, name: str, who: str) -> Submission:
        """Checkpoint, release the nodes, and never run the job again.

        Raise SpecError, also for a job that has finished.
        """
        return self._intend(name, DesiredState.CANCELLED, who)

    def reprioritize(self, name: str, priority: int, who: str) -> Submission:
        """Serve the job before or after others.

        Raise SpecError, also for a job that has finished or was cancelled.
        """
        self._check_goes_on(name)
        return self._registry.set_priority(name, priority, who, self._clock.now())

    def proposals(self, states: Iterable[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Return the daemon's proposals in these states, or all if none is named."""
        return self._registry.proposals(tuple(states))

    def approve(self, proposal_id: str, who: str) -> Proposal:
        """Let the next tick do this, if it is still needed. Raise SpecError."""
        now = self._clock.now()
        return self._registry.answer(proposal_id, ProposalState.APPROVED, who, now)

    def reject(self, proposal_id: str, who: str) -> Proposal:
        """Reject the proposal, and do not propose the same again for a while. Raise SpecError."""
        now = self._clock.now()
        return self._registry.answer(proposal_id, ProposalState.REJECTED, who, now)

    def halt(self, reason: str, who: str) -> Halt:
        """Stop all launches at once; running jobs go on and checkpoint. A new reason raises a new
        alert."""
        before = self._registry.halted()
        halt = self._registry.halt(reason, who, self._clock.now())
        if halt != before:
            self._board.settled(AlertKind.HALT, "")
        self._board.alert(halt.at, AlertKind.HALT, "", halt.message)
        return halt

    def unhalt(self, who: str) -> None:
        """Allow launches again."""
        self._registry.unhalt(who, self._clock.now())
        self._board.settled(AlertKind.HALT, "")

    def halted(self) -> Halt | None:
        """Return the current halt, or None."""
        return self._registry.halted()

    def mode(self) -> Mode:
        """Return the daemon's mode."""
        return self._registry.mode() or self._settings.mode

    def set_mode(self, mode: Mode, who: str) -> None:
        """Set the mode from the next tick on."""
        self._registry.set_mode(mode, who, self._clock.now())

    def changes(self, after: int = 0) -> tuple[tuple[int, AuditEntry], ...]:
        """Return the operator actions with a number above ``after``, each with its number."""
        return self._registry.changes(after)

    def fleet(self) -> FleetView:
        """Return all living nodes at the last tick."""
        seen = self._board.snapshot
        usd = sum(node.usd_per_hour for node in seen.nodes)
        return FleetView(
            seen.now, seen.nodes, usd, self.mode(), self.halted(), self._board.orphans
        )  # fmt: skip

    def budgets(self) -> tuple[BudgetUse, ...]:
        """Return what was spent of each limit on dollars, as of the last tick."""
        return self._board.snapshot.budgets

    def cost_history(self, statuses: Iterable[JobStatus], since: datetime) -> CostHistory:
        """Return what these jobs cost per day, but for those that were over before ``since``."""
        return self._costs.read(statuses, since)

    def decisions(self, job: str | None = None, limit: int = 100) -> tuple[DecisionRow, ...]:
        """Return the first so many of ``each_decision``. Raise SpecError."""
        return tuple(islice(self.each_decision(job), limit))

    def each_decision(self, job: str | None = None) -> Iterator[DecisionRow]:
        """Return the decisions of a job, newest first; without a job the last one of each.

        Raise SpecError if there is no such job.
        """
        if job is not None:
            self._known(job)
            made = self._ledger.newest(DecisionMade, job)
        else:
            known = {submission.name for submission in self._registry.submissions()}
            last = self._ledger.last_of_each(DecisionMade)
            made = ((seq, decision) for seq, decision in last if decision.job in known)
        return (DecisionRow(seq, decision) for seq, decision in made)

    def decision(self, decision_id: str) -> DecisionRow:
        """Return one decision with its reasons. Raise SpecError if none has that id."""
        job = decision_id.rpartition("-d")[0]
        for seq, decision in self._ledger.newest(DecisionMade, job):
            if decision.decision_id == decision_id:
                return DecisionRow(seq, decision)
        raise unknown_decision_error(decision_id)

    def events(
        self, job: str | None = None, after: int = 0, limit: int = 1000
    ) -> tuple[RecordedEvent, ...]:
        """Return at most ``limit`` events of a job, or of all jobs, after number ``after``."""
        return tuple(islice(self._ledger.events(job, after), limit))

    def market(self) -> MarketView:
        """Return the providers' offers at the last tick."""
        seen = self._board.snapshot
        rows = []
        for offer in seen.offers:
            price = offer.price_usd_per_hour
            rows.append(MarketRow(offer, None if price is None else price.age_s(seen.now)))
        return MarketView(seen.now, tuple(rows), dict(seen.silent))

    def account_limits(self) -> Account:
        """Return the account, whose guards and tenants' limits apply to all jobs together."""
        return self._account

    def logs(self, job: str, node_id: str | None = None, after: int = 0) -> LogChunk:
        """Return a node's log from byte ``after`` on; without a node, that of the newest gang's
        first.

        Raise SpecError if there is no such job, node or log.
        """
        self._known(job)
        return self._logs.read(job, logged_node(self._ledger, job, node_id), after)

    @property
    def node_store(self) -> ObjectStore:
        """Return the store through which nodes are reached."""
        return self._logs.store

    def newest_gang(self, job: str) -> tuple[str, ...]:
        """Return the nodes of the job's newest gang, by rank; () before the first."""
        return next((gang.node_ids for _, gang in self._ledger.newest(GangFormed, job)), ())

    def task_log(self, job: str, task: int) -> TaskLog:
        """Return what an array's task printed. Raise SpecError if it has no log so far."""
        return self._logs.read_task(job, task)

    def alerts(self, after: int = 0) -> tuple[Alert, ...]:
        """Return the alerts with a number above ``after``, oldest first."""
        return self._board.alerts(after)

    def health(self, *, of_all: bool = True) -> Health:
        """Return whether the loop runs and whether the daemon can do its work. The reason why a
        tick failed, which may name any job, is included only with ``of_all``."""
        age_s, alive = self._board.tick_age_s, self._board.has_ended_tick and self.is_alive()
        succeeds = age_s is not None and age_s <= self._max_age_s
        problems = [] if succeeds else ["no tick has succeeded for a while"]
        if self._board.tick_failure:
            problems.append(self._board.tick_failure if of_all else "the last tick failed")
        silent = self._board.snapshot.silent
        problems += [f"{name} does not answer: {why}" for name, why in silent.items()]
        if not self._board.leads:
            problems.append("another daemon leads; this one stands by")
        ready = alive and succeeds and self._board.leads and not self._board.tick_failure
        return Health(
            alive, ready, tuple(problems), self._board.ticked_at, age_s, self._board.leads
        )  # fmt: skip

    def is_alive(self) -> bool:
        """Return whether ticks come to an end, though they may fail; the first one may be under
        way."""
        return self._board.loop_age_s <= self._max_age_s

    @property
    def _max_age_s(self) -> float:
        interval_s = self._settings.tick_s / getattr(self._clock, "speed", 1.0)
        return FIRST_TICK_S + MAX_MISSED_TICKS * interval_s

    def metrics_snapshot(self) -> MetricsSnapshot:
        """Return all metrics."""
        return collect_metrics(
            self._board,
            self.jobs(),
            self.market(),
            mode=self.mode(),
            halted=self.halted() is not None,
            open_proposals=len(self.proposals([ProposalState.OPEN])),
        )

    def _intend(self, name: str, desired_state: DesiredState, who: str) -> Submission:
        self._check_goes_on(name)
        return self._registry.set_desired_state(name, desired_state, who, self._clock.now())

    def _check_goes_on(self, name: str) -> None:
        if self.job(name).summary.state is JobState.FINISHED:
            raise SpecError(
                f"job {name!r} has finished",
                hint=f"see its result with costopt show {name}",
                code="finished",
            )

    def _known(self, name: str) -> Submission:
        submission = self._registry.submission(name)
        if submission is None:
            raise unknown_job_error(name)
        return submission

    def _status(self, submission: Submission) -> JobStatus:
        seen, name = self._board.snapshot, submission.name
        decision = seen.decisions.get(name)
        upcoming = upcoming_occurrences([submission], seen.now, 1)
        return JobStatus(
            submission,
            seen.summaries.get(name) or _fresh(name, seen.now),
            seen.held.get(name, ""),
            seen.slacks.get(name),
            decision,
            seen.nodes_of.get(name, ()),
            upcoming[0].at if upcoming else None,
            self._board.forecasts.get(name),
        )


def unknown_job_error(name: str) -> SpecError:
    """Return the error for a job that does not exist."""
    return SpecError(f"there is no job {name!r}", hint="see `costopt list`", code="unknown_job")


def unknown_decision_error(decision_id: str) -> SpecError:
    """Return the error for a decision that does not exist."""
    return SpecError(f"there is no decision {decision_id!r}", hint="list those of its job")


def _fresh(name: str, now: datetime) -> JobSummary:
    """Return the summary of a job that no tick has seen yet."""
    return JobAccount(name).summary(now)
