"""All operations, in process.

What can be asked and told of a running daemon, in process; the API and the pages call this.

Every method may be called from any thread at any time and, but for ``verdict``, returns at once:
what is told is written to the registry and carried out by the next tick, what is asked comes from
the last tick or from the ledger. Every method may raise LedgerError.

What is measured of the daemon and its jobs, for monitoring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

from costopt import __version__
from costopt.controller.node_logs import LogReader, logged_node
from costopt.daemon.admission import (
    AdmissionPlanner,
    AdmissionResult,
    AdmittedJob,
    load_submission,
    parse_submission,
)
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import (
    Alert,
    DecisionRow,
    FleetView,
    Health,
    JobMetrics,
    JobStatus,
    MarketRow,
    MarketView,
    MetricsSnapshot,
    SharedState,
    TickSnapshot,
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
from costopt.domain.events import DecisionMade
from costopt.domain.ports import Clock, EventIndex, RecordedEvent
from costopt.ledger.job_account import JobAccount
from costopt.ledger.summary import JobState, JobSummary
from costopt.protocol.node_logs import LogChunk

MAX_MISSED_TICKS = 5.0
"""A daemon whose last good tick is older than so many intervals is not alive."""
FIRST_TICK_S = 60.0


class DaemonService:
    """The daemon, as others see it."""

    def __init__(
        self, registry: Registry, ledger: EventIndex, clock: Clock, board: SharedState,
        settings: DaemonSettings, logs: LogReader, account: Account = UNLIMITED,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._ledger = ledger
        self._clock = clock
        self._board = board
        self._settings = settings
        self._logs = logs
        self._account = account
        self._judge = AdmissionPlanner(board, account)

    def submit(self, submission: Submission) -> Submission:
        """Take a job in; the next tick begins it. Raises SpecError where the name is taken."""
        self._registry.submit(submission)
        return submission

    def admitted(self, submission: Submission) -> AdmittedJob:
        """The job and policy of a submission. Raises SpecError, also where the job names places
        that are none of its tenant's."""
        return load_submission(submission, self._account)

    def verdict(self, submission: Submission) -> AdmissionResult:
        """Whether the job could end in time; takes seconds. Raises InfeasibleError, SpecError."""
        known = self.admitted(submission)
        return self._judge.check(known.job, known.policy)

    def read(
        self, job_document: str, policy_document: str, *, workdir: str, who: str, priority: int = 0
    ) -> Submission:
        """Check a job that is handed in.

        ``job_document`` is the YAML text of a job, ``policy_document`` that of a policy, or the
        name of a shipped one. Relative paths of the job count from ``workdir``, a folder that the
        daemon can read. Raises SpecFileError with every problem, SpecError.
        """
        now = self._clock.now()
        return parse_submission(job_document, policy_document, workdir, who, priority, now)

    def jobs(self, tenant: str | None = None) -> tuple[JobStatus, ...]:
        """Every job that was ever handed in, in the order of submission; of one tenant where one
        is named."""
        return tuple(self._status(s) for s in self._registry.submissions(tenant=tenant))

    def job(self, name: str) -> JobStatus:
        """One job. Raises SpecError where there is none of that name."""
        return self._status(self._known(name))

    def pause(self, name: str, who: str) -> Submission:
        """Checkpoint, give the nodes back, and keep the job for later.

        Raises SpecError, also for a job that has finished.
        """
        return self._intend(name, DesiredState.PAUSED, who)

    def resume(self, name: str, who: str) -> Submission:
        """Go on with a paused job, or one that a guard stopped.

        Raises SpecError, also for a job that has finished.
        """
        return self._intend(name, DesiredState.RUN, who)

    def cancel(self, name: str, who: str) -> Submission:
        """Checkpoint, give the nodes back, and never run it again.

        Raises SpecError, also for a job that has finished.
        """
        return self._intend(name, DesiredState.CANCELLED, who)

    def reprioritize(self, name: str, priority: int, who: str) -> Submission:
        """Serve the job before or after others.

        Raises SpecError, also for a job that has finished or was cancelled.
        """
        self._check_goes_on(name)
        return self._registry.set_priority(name, priority, who, self._clock.now())

    def proposals(self, states: Iterable[ProposalState] = ()) -> tuple[Proposal, ...]:
        """What the daemon asked for; all where no state is named."""
        return self._registry.proposals(tuple(states))

    def approve(self, proposal_id: str, who: str) -> Proposal:
        """Let the next tick do this, if it is still wanted. Raises SpecError."""
        now = self._clock.now()
        return self._registry.answer(proposal_id, ProposalState.APPROVED, who, now)

    def reject(self, proposal_id: str, who: str) -> Proposal:
        """Do not do this, nor ask for the same again for a while. Raises SpecError."""
        now = self._clock.now()
        return self._registry.answer(proposal_id, ProposalState.REJECTED, who, now)

    def halt(self, reason: str, who: str) -> Halt:
        """Stop all launches at once; what runs goes on and saves. A new reason is told as news."""
        before = self._registry.halted()
        halt = self._registry.halt(reason, who, self._clock.now())
        if halt != before:
            self._board.settled("halt", "")
        self._board.alert(halt.at, "halt", "", halt.message)
        return halt

    def unhalt(self, who: str) -> None:
        """Let launches happen again."""
        self._registry.unhalt(who, self._clock.now())
        self._board.settled("halt", "")

    def halted(self) -> Halt | None:
        """The halt that stands."""
        return self._registry.halted()

    def mode(self) -> Mode:
        """How far the daemon goes by itself."""
        return self._registry.mode() or self._settings.mode

    def set_mode(self, mode: Mode, who: str) -> None:
        """From the next tick on."""
        self._registry.set_mode(mode, who, self._clock.now())

    def changes(self, after: int = 0) -> tuple[tuple[int, AuditEntry], ...]:
        """What people told the daemon, with its number."""
        return self._registry.changes(after)

    def fleet(self) -> FleetView:
        """All living nodes at the last tick."""
        seen = self._board.snapshot
        usd = sum(node.usd_per_hour for node in seen.nodes)
        return FleetView(
            seen.now, seen.nodes, usd, self.mode(), self.halted(), self._board.orphans
        )  # fmt: skip

    def decisions(self, job: str | None = None, limit: int = 100) -> tuple[DecisionRow, ...]:
        """The newest decisions of a job, newest first; without a job the last one of each.

        Raises SpecError.
        """
        if job is not None:
            self._known(job)
            made = self._ledger.newest(DecisionMade, job)
        else:
            known = {submission.name for submission in self._registry.submissions()}
            last = self._ledger.last_of_each(DecisionMade)
            made = ((seq, decision) for seq, decision in last if decision.job in known)
        return tuple(DecisionRow(seq, decision) for seq, decision in islice(made, limit))

    def decision(self, decision_id: str) -> DecisionRow:
        """One decision with its reasons. Raises SpecError where there is none of that id."""
        job = decision_id.rpartition("-d")[0]
        for seq, decision in self._ledger.newest(DecisionMade, job):
            if decision.decision_id == decision_id:
                return DecisionRow(seq, decision)
        raise unknown_decision_error(decision_id)

    def events(
        self, job: str | None = None, after: int = 0, limit: int = 1000
    ) -> tuple[RecordedEvent, ...]:
        """At most ``limit`` events of a job, or of all, that follow number ``after``."""
        return tuple(islice(self._ledger.events(job, after), limit))

    def market(self) -> MarketView:
        """What the providers sold at the last tick."""
        seen = self._board.snapshot
        rows = []
        for offer in seen.offers:
            price = offer.price_usd_per_hour
            rows.append(MarketRow(offer, None if price is None else price.age_s(seen.now)))
        return MarketView(seen.now, tuple(rows), dict(seen.silent))

    def account_limits(self) -> Account:
        """The guards and tenants that all jobs together are held to."""
        return self._account

    def logs(self, job: str, node_id: str | None = None, after: int = 0) -> LogChunk:
        """A node's log from byte ``after`` on; without a node that of the newest gang's first.

        Raises SpecError where there is no such job, node or log.
        """
        self._known(job)
        return self._logs.read(job, logged_node(self._ledger, job, node_id), after)

    def alerts(self, after: int = 0) -> tuple[Alert, ...]:
        """What a person should hear of, with a number above ``after``, oldest first."""
        return self._board.alerts(after)

    def health(self, *, of_all: bool = True) -> Health:
        """Whether the loop goes on, and whether it can do its work; why a tick failed, which may
        name any job, only where it is ``of_all``."""
        age_s = self._board.tick_age_s
        interval_s = self._settings.tick_s / getattr(self._clock, "speed", 1.0)
        most_s = FIRST_TICK_S + MAX_MISSED_TICKS * interval_s
        alive = age_s is not None and age_s <= most_s
        problems = [] if alive else ["no tick has ended well for a while"]
        if self._board.tick_failure:
            problems.append(self._board.tick_failure if of_all else "the last tick failed")
        silent = self._board.snapshot.silent
        problems += [f"{name} does not answer: {why}" for name, why in silent.items()]
        if not self._board.leads:
            problems.append("another daemon leads; this one stands by")
        ready = alive and self._board.leads and not self._board.tick_failure
        return Health(
            alive, ready, tuple(problems), self._board.ticked_at, age_s, self._board.leads
        )  # fmt: skip

    def metrics_snapshot(self) -> MetricsSnapshot:
        """Everything that is measured."""
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
                hint=f"costopt show {name} says what it came to",
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
        return JobStatus(
            submission,
            seen.summaries.get(name) or _fresh(name, seen.now),
            seen.held.get(name, ""),
            None if decision is None else decision.slack_s,
            decision,
            seen.nodes_of.get(name, ()),
        )


def unknown_job_error(name: str) -> SpecError:
    """What is said of a job that is not there."""
    return SpecError(f"there is no job {name!r}", hint="see `costopt list`", code="unknown_job")


def unknown_decision_error(decision_id: str) -> SpecError:
    """What is said of a decision that is not there."""
    return SpecError(f"there is no decision {decision_id!r}", hint="list those of its job")


def _fresh(name: str, now: datetime) -> JobSummary:
    """Of a job that no tick has seen yet."""
    return JobAccount(name).summary(now)


def collect_metrics(
    board: SharedState,
    statuses: Sequence[JobStatus],
    market: MarketView,
    *,
    mode: Mode,
    halted: bool,
    open_proposals: int,
) -> MetricsSnapshot:
    """Everything, as of the last tick."""
    seen = board.snapshot
    return MetricsSnapshot(
        now=seen.now,
        version=__version__,
        mode=mode,
        halted=halted,
        leads=board.leads,
        jobs=tuple(_figures(s, seen) for s in statuses),
        launches={
            "ok": sum(s.summary.launches for s in statuses),
            "failed": sum(s.summary.failed_launches for s in statuses),
        },
        price_age_s=_price_ages(market),
        orphans=len(board.orphans),
        tick_count=board.tick_count,
        tick_sum_s=board.tick_sum_s,
        tick_buckets=board.tick_buckets(),
        task_runs=board.task_runs(),
        open_proposals=open_proposals,
    )


def _figures(status: JobStatus, seen: TickSnapshot) -> JobMetrics:
    name = status.submission.name
    return JobMetrics(
        tenant=status.submission.tenant,
        summary=status.summary,
        deadline_slack_s=status.slack_s,
        is_failing=name in seen.troubles,
        closed=name in seen.closed,
    )


def _price_ages(market: MarketView) -> dict[str, float]:
    """The age of the oldest price of each provider."""
    ages: dict[str, float] = {}
    for row in market.rows:
        if row.price_age_s is not None:
            name = row.offer.pool.provider
            ages[name] = max(row.price_age_s, ages.get(name, 0.0))
    return ages
