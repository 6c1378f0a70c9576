"""Keeps the jobs that the engine controls in step with the submissions and operator actions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from costopt.controller.payload import with_policy_name
from costopt.controller.site import LiveSite
from costopt.daemon.intake.admission import load_submission
from costopt.daemon.intake.submission_loader import SubmissionLoader
from costopt.daemon.loop.held_jobs import held_job, held_terms
from costopt.daemon.loop.mode_gate import DAEMON
from costopt.daemon.loop.payload_preparer import PayloadPreparer
from costopt.daemon.loop.recurring_jobs import RecurringJobs
from costopt.daemon.loop.strategy_pool import StrategyPool
from costopt.domain.control import DesiredState, Halt, Mode, Registry, Submission
from costopt.domain.errors import CostoptError, LedgerError, SpecError, failure_message
from costopt.domain.events import (
    Event,
    LaunchesAllowed,
    LaunchesHalted,
    ModeChanged,
    RunStopped,
)
from costopt.engine.billing import Payer, month_of
from costopt.engine.engine import Engine
from costopt.ledger.job_query import ENDED
from costopt.ledger.summary import JobState, JobSummary

BILL_TIMEOUT = timedelta(days=1)
RESUMED = "run"

log = logging.getLogger("costopt.daemon.job_sync")


class JobSync:
    """Adds submitted jobs to the engine, stops and resumes them as requested, and removes finished
    ones."""

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        site: LiveSite,
        readiness: PayloadPreparer,
        strategies: StrategyPool,
        recorded: Iterable[str],
        resting: Mapping[str, JobSummary],
    ) -> None:
        """``recorded`` are all jobs in the ledger; the events of a job in ``resting`` need not be
        read again if it ended long ago."""
        self._engine = engine
        self._registry = registry
        self._site = site
        self._readiness = readiness
        self._strategies = strategies
        self._resting = dict(resting)
        self._loader = SubmissionLoader(load_submission)
        self._heeded = max((number for number, _ in registry.changes()), default=0)
        self._recurring = RecurringJobs(registry, self._is_open, self._loader.load)
        known = registry.submissions()
        self._submissions = {s.name: s for s in known if not self._recurring.accept(s)}
        names = {submission.name for submission in known}
        self._strangers = tuple(job for job in recorded if job not in names)
        self._retrying: set[str] = set()
        self._unreadable: dict[str, Submission] = {}
        self._troubles: dict[str, str] = {}
        self.closed: dict[str, JobSummary] = {}
        self.held: dict[str, JobSummary] = {}
        """Jobs that cannot be built and are not in the engine, as they were when that was found."""

    def sync(self, now: datetime) -> None:
        """Apply submissions and requests before a tick. Raise LedgerError."""
        self._pause_released(now)
        self._read_changes()
        self._reopen(now)
        self._follow_all(now)
        if self._recurring.submit_due(now):
            self._read_changes()
            self._follow_all(now)

    def _follow_all(self, now: datetime) -> None:
        for name, submission in tuple(self._submissions.items()):
            with self._isolate(name):
                if name in self.closed or self._was_over(submission, now):
                    del self._submissions[name]
                    continue
                if name not in self._engine.jobs and not self._is_unreadable(submission):
                    self._add(submission, now)
                if name in self._engine.jobs:
                    self._follow(submission)
                if name not in self._unreadable and name not in self._retrying:
                    self._troubles.pop(name, None)

    @contextmanager
    def _isolate(self, name: str) -> Iterator[None]:
        """Report an error of one job as that job's, and suppress it. Raise LedgerError."""
        try:
            yield
        except LedgerError:
            raise
        except Exception as error:
            if not isinstance(error, CostoptError):
                log.exception("job %s cannot be followed", name)
            self._troubles[name] = failure_message(error)

    def record_mode(self, mode: Mode, now: datetime) -> None:
        """Record in each job's ledger that the mode or the halt has changed. Raise LedgerError."""
        halt = self._registry.halted()
        news: list[Event] = []
        for name, record in self._engine.journal.records.items():
            if record.mode != mode.value:
                news.append(ModeChanged(at=now, job=name, mode=mode.value))
            if halt is not None and not _is_recorded(halt, record.halted):
                news.append(LaunchesHalted(at=now, job=name, reason=halt.reason, who=halt.who))
            if halt is None and record.halted is not None:
                news.append(LaunchesAllowed(at=now, job=name))
        self._engine.journal.write(*news)

    def retire(self, now: datetime) -> None:
        """Remove, after a tick, the jobs that are over and have released all nodes."""
        for name, submission in self._submissions.items():
            if name in self._engine.jobs and self._is_over(submission):
                with self._isolate(name):
                    self._retire(name, now)

    def _retire(self, name: str, now: datetime) -> None:
        if not self._is_at_rest(name) or self._engine.awaits_bill(name, now - BILL_TIMEOUT):
            return
        summary = self._engine.journal.accounts[name].summary(now)
        self._engine.remove(name)
        self._readiness.forget(name)
        if name not in self._retrying:
            self._troubles.pop(name, None)
        self.closed[name] = summary

    def _is_at_rest(self, name: str) -> bool:
        """Return whether no node of the job remains or may still come."""
        record = self._engine.journal.records[name]
        return not (record.live or record.intents)

    def held_jobs(self) -> dict[str, str]:
        """Return why jobs get no nodes, by job: operator actions, budgets, or their files."""
        held = self.troubles()
        for name in self._engine.jobs:
            reason = self._engine.stops.reason(name) or self._readiness.waiting_reason(name)
            if reason:
                held[name] = reason
        return held

    def uncontrolled(self) -> Iterator[str]:
        """Return open jobs that the engine does not control: jobs that cannot be read, and jobs of
        the ledger that were never submitted to this daemon, such as those of `costopt run`."""
        for name in dict.fromkeys((*self._strangers, *self._submissions)):
            if name not in self._engine.jobs and name not in self.closed:
                yield name

    def troubles(self) -> dict[str, str]:
        """Return, by job, why it cannot be built, its files cannot be sent or its nodes cannot be
        reached."""
        unsent = {name: why for name in self._engine.jobs if (why := self._readiness.error(name))}
        return self._engine.troubles.reported | unsent | self._troubles | self._recurring.troubles

    def _is_open(self, name: str) -> bool:
        """Return whether a job may still run."""
        submission = self._submissions.get(name)
        if submission is None or name in self.closed:
            return False
        return name not in self._engine.jobs or not self._is_over(submission)

    def _was_over(self, submission: Submission, now: datetime) -> bool:
        """Close a job that ended before this month, without reading its events again; return
        whether it did."""
        name = submission.name
        summary = self._resting.get(name)
        if summary is None or name in self._engine.jobs:
            return False
        ended = summary.state in ENDED or submission.desired_state is DesiredState.CANCELLED
        if not ended or summary.now >= min(now - BILL_TIMEOUT, month_of(now)):
            return False
        payer = Payer(submission.tenant, summary.policy)
        self._engine.spending.restore(name, payer, summary.usd_micros, now)
        self.closed[name] = summary
        return True

    def _is_over(self, submission: Submission) -> bool:
        record = self._engine.journal.records[submission.name]
        return record.over or submission.desired_state is DesiredState.CANCELLED

    def _add(self, submission: Submission, now: datetime) -> None:
        if submission.desired_state is DesiredState.CANCELLED and self._drop(submission, now):
            return
        try:
            known = self._loader.load(submission)
            job = with_policy_name(self._site.prepare_job(known.job), known.policy)
            terms = self._strategies.terms(known.policy, submission, now)
        except Exception as error:
            # Where a store or provider does not answer, the next tick may build the job.
            if isinstance(error, SpecError) or not isinstance(error, CostoptError):
                self._unreadable[submission.name] = submission
                self._hold(submission, failure_message(error), now)
            raise
        self._engine.add(job, terms)
        if not self._engine.journal.records[job.name].over:
            self._readiness.request(job)

    def _is_unreadable(self, submission: Submission) -> bool:
        """Return whether the submission is unchanged since it could not be read."""
        return self._unreadable.get(submission.name) == submission

    def _drop(self, submission: Submission, now: datetime) -> bool:
        """Close a cancelled job that has no nodes and awaits no bill, without building it; return
        whether it had none."""
        name, journal = submission.name, self._engine.journal
        journal.open(name)
        dropped = self._is_at_rest(name) and not self._engine.awaits_bill(name, now - BILL_TIMEOUT)
        if dropped:
            account = journal.accounts[name]
            if account.submitted is not None and account.state not in (*ENDED, JobState.STOPPED):
                reason = _REASONS[DesiredState.CANCELLED]
                journal.write(RunStopped(at=now, job=name, reason=reason))
            summary = account.summary(now)
            self._engine.spending.close(name, Payer(submission.tenant, summary.policy), now)
            self._troubles.pop(name, None)
            self.closed[name] = summary
        journal.close(name)
        return dropped

    def _hold(self, submission: Submission, why: str, now: datetime) -> None:
        """Let a job that cannot be built save and release the nodes that it has."""
        name, journal = submission.name, self._engine.journal
        journal.open(name)
        begun = journal.accounts[name].submitted
        has_nodes = not self._is_at_rest(name)
        self.held[name] = journal.accounts[name].summary(now)
        journal.close(name)
        if begun is not None and has_nodes:
            self._engine.add(held_job(submission, begun), held_terms(submission))
            self._engine.stop(f"held: {why}", name)

    def _follow(self, submission: Submission) -> None:
        name, stops = submission.name, self._engine.stops
        if (prepared := self._readiness.prepared(name)) is not None:
            self._engine.jobs[name] = prepared
        self._engine.reprioritize(name, submission.priority)
        match submission.desired_state:
            case DesiredState.RUN if stops.reason(name) in _REASONS.values():
                stops.end(name)
            case DesiredState.PAUSED | DesiredState.CANCELLED:
                if stops.reason(name) != _REASONS[submission.desired_state]:
                    stops.end(name)
                    self._engine.stop(_REASONS[submission.desired_state], name)

    def _pause_released(self, now: datetime) -> None:
        """Pause the jobs whose idle nodes the engine released: until somebody resumes them."""
        for name in tuple(self._engine.released):
            with suppress(SpecError):  # it was cancelled meanwhile
                self._registry.set_desired_state(name, DesiredState.PAUSED, DAEMON, now)
            del self._engine.released[name]

    def _read_changes(self) -> None:
        """Read only those submissions that have changed."""
        for number, change in self._registry.changes(self._heeded):
            self._heeded = number
            submission = self._registry.submission(change.subject)
            if submission is None or self._recurring.accept(submission):
                continue
            self._submissions[submission.name] = submission
            if change.what == RESUMED:
                self._retrying.add(change.subject)

    def _reopen(self, now: datetime) -> None:
        """Reopen jobs that failed, or could not be read, and that were requested to run."""
        for name in tuple(self._retrying):
            submission = self._registry.submission(name)
            self._troubles.pop(name, None)
            with self._isolate(name):
                if (
                    submission is not None
                    and submission.desired_state is not DesiredState.CANCELLED
                ):
                    self._retry(submission, now)
                self._retrying.discard(name)

    def _retry(self, submission: Submission, now: datetime) -> None:
        name = submission.name
        if name in self._engine.jobs and name in self._unreadable:
            if not self._is_at_rest(name):
                raise SpecError(f"job {name!r} is still saving and releasing its nodes")
            self._engine.remove(name)
        self._unreadable.pop(name, None)
        self.held.pop(name, None)
        self._resting.pop(name, None)
        self._submissions[name] = submission
        over = self.closed.get(name)
        if over is not None and over.state is JobState.FAILED:
            del self.closed[name]
            self._add(submission, now)
        if name in self._engine.failed:
            self._site.retry(self._engine.jobs[name])
            self._engine.retry(name)
            self._readiness.request(self._engine.jobs[name])


def _is_recorded(halt: Halt, last: LaunchesHalted | None) -> bool:
    return last is not None and (last.reason, last.who) == (halt.reason, halt.who)


_REASONS = {DesiredState.PAUSED: "paused", DesiredState.CANCELLED: "cancelled"}
