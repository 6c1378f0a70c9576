"""The operations on a running daemon, in process; the API and the pages call these.

Every method may be called from any thread at any time and returns at once: a command is written to
the registry and carried out by the next tick. Every method may raise LedgerError. What a caller may
read is in ``costopt.daemon.reader``.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from costopt.controller.node_logs import LogReader
from costopt.daemon.intake.admission import (
    AdmissionPlanner,
    AdmittedJob,
    admit_job,
    check_account,
)
from costopt.daemon.intake.open_jobs import check_open_jobs
from costopt.daemon.intake.place_admission import PlaceAdmission
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import (
    SharedState,
)
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.daemon.watch.cost_history import CostReader
from costopt.daemon.watch.forecasts import LearnedForecasters
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.control import (
    DesiredState,
    Halt,
    Mode,
    Proposal,
    ProposalState,
    Registry,
    Submission,
)
from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.domain.ports import Clock, EventIndex
from costopt.ledger.summary import JobState
from costopt.spec.schedule import parse_schedule


class DaemonService:
    """What one may have the daemon do, and what the daemon works on."""

    def __init__(
        self, registry: Registry, ledger: EventIndex, clock: Clock, board: SharedState,
        settings: DaemonSettings, logs: LogReader, account: Account = UNLIMITED,
        check_secrets: Callable[[Job], None] | None = None,
        prepare_job: Callable[[Job], Job] = lambda job: job,
        forecasters: LearnedForecasters | None = None,
    ) -> None:  # fmt: skip
        self.registry = registry
        self.ledger = ledger
        self.clock = clock
        self.board = board
        self.settings = settings
        self.logs = logs
        self.account = account
        self._check_secrets = check_secrets
        self.planner = AdmissionPlanner(board, account, forecasters)
        self._submitting = Lock()
        self._places = PlaceAdmission(registry, board, prepare_job, account.owner)
        self.costs = CostReader(ledger)

    def submit(self, admitted: AdmittedJob) -> Submission:
        """Accept a job; a tick that comes soon starts it.

        Raise SpecError if the name is taken, if the account does not allow its tenant or places, if
        its nodes could not read a secret, or if its checkpoint place is another job's. Raise
        GuardTrippedError if its tenant has too many open jobs.
        """
        check_account(admitted, self.account)
        submission, job = admitted.submission, admitted.job
        if self._check_secrets is not None:
            self._check_secrets(job)
        is_recurring = parse_schedule(submission.job_document) is not None
        with self._submitting:
            check_open_jobs(self.account, self.registry, self.board, submission.tenant)
            self._places.check(job, recurring=is_recurring)
            self.registry.submit(submission)
        self.board.is_awaited.set()
        return submission

    def read(
        self, job_document: str, policy_document: str, *, workdir: str, who: str, priority: int = 0
    ) -> AdmittedJob:
        """Return a checked job, which may be submitted.

        ``job_document`` is the YAML text of a job, ``policy_document`` that of a policy, or the
        name of a shipped one. Relative paths of the job count from ``workdir``, a folder that the
        daemon can read. Raise SpecFileError with every problem, or SpecError.
        """
        now = self.clock.now()
        return admit_job(job_document, policy_document, workdir, who, priority, now)

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
        return self.registry.set_priority(name, priority, who, self.clock.now())

    def approve(self, proposal_id: str, who: str) -> Proposal:
        """Let the next tick do this, if it is still needed. Raise SpecError."""
        now = self.clock.now()
        return self.registry.answer(proposal_id, ProposalState.APPROVED, who, now)

    def reject(self, proposal_id: str, who: str) -> Proposal:
        """Reject the proposal, and do not propose the same again for a while. Raise SpecError."""
        now = self.clock.now()
        return self.registry.answer(proposal_id, ProposalState.REJECTED, who, now)

    def halt(self, reason: str, who: str) -> Halt:
        """Stop all launches at once; running jobs go on and checkpoint. A new reason raises a new
        alert."""
        before = self.registry.halted()
        halt = self.registry.halt(reason, who, self.clock.now())
        if halt != before:
            self.board.settled(AlertKind.HALT, "")
        self.board.alert(halt.at, AlertKind.HALT, "", halt.message)
        return halt

    def unhalt(self, who: str) -> None:
        """Allow launches again."""
        self.registry.unhalt(who, self.clock.now())
        self.board.settled(AlertKind.HALT, "")

    def mode(self) -> Mode:
        """Return the daemon's mode."""
        return self.registry.mode() or self.settings.mode

    def set_mode(self, mode: Mode, who: str) -> None:
        """Set the mode from the next tick on."""
        self.registry.set_mode(mode, who, self.clock.now())

    def _intend(self, name: str, desired_state: DesiredState, who: str) -> Submission:
        self._check_goes_on(name)
        return self.registry.set_desired_state(name, desired_state, who, self.clock.now())

    def _check_goes_on(self, name: str) -> None:
        if self.registry.submission(name) is None:
            raise unknown_job_error(name)
        summary = self.board.snapshot.summaries.get(name)
        if summary is not None and summary.state is JobState.FINISHED:
            raise SpecError(
                f"job {name!r} has finished",
                hint=f"see its result with costopt status {name}",
                code="finished",
            )


def unknown_job_error(name: str) -> SpecError:
    """Return the error for a job that does not exist."""
    return SpecError(f"there is no job {name!r}", hint="see `costopt status`", code="unknown_job")
