"""Submits the occurrences of recurring jobs when they are due."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice

from costopt.domain.control import DesiredState, Registry, Submission
from costopt.domain.errors import LedgerError, SpecError, failure_message
from costopt.registry.registry import SCHEDULER
from costopt.spec.schedule import (
    CatchUp,
    Overlap,
    Schedule,
    occurrence_document,
    occurrence_name,
    parse_schedule,
)

log = logging.getLogger("costopt.daemon.recurring_jobs")

RESTART = timedelta(minutes=10)
"""An occurrence that fell into so short a pause of the daemon was not missed."""
NEVER = datetime.max.replace(tzinfo=UTC)
MAX_DUE = 100
"""Occurrences submitted at once, the newest: a job of every minute and a week without a daemon
would else become ten thousand."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A future job of a recurring one."""

    job: str
    schedule: str
    tenant: str
    at: datetime
    deadline_at: datetime | None


def upcoming_occurrences(
    submissions: Iterable[Submission], now: datetime, limit: int
) -> tuple[Occurrence, ...]:
    """Return the next occurrences of the recurring jobs that are to run, the earliest first."""
    each = (_upcoming(submission, now) for submission in submissions)
    return tuple(islice(merge(*each, key=lambda occurrence: occurrence.at), limit))


def _upcoming(submission: Submission, now: datetime) -> Iterator[Occurrence]:
    if submission.desired_state is not DesiredState.RUN:
        return
    try:
        schedule = parse_schedule(submission.job_document)
    except SpecError:
        return
    if schedule is None:
        return
    for at in schedule.occurrences(max(now, submission.submitted_at)):
        name = occurrence_name(submission.name, at)
        deadline_at = None if schedule.deadline is None else at + schedule.deadline
        yield Occurrence(name, submission.name, submission.tenant, at, deadline_at)


class RecurringJobs:
    """The recurring jobs of a registry.

    Occurrences that fell due before the first call of ``submit_due`` were missed, as no daemon led;
    later ones are on time, however long a tick takes.
    """

    def __init__(
        self,
        registry: Registry,
        is_open: Callable[[str], bool],
        check: Callable[[Submission], object],
    ) -> None:
        """``is_open`` returns whether the job of this name may still run; ``check`` raises
        SpecError if this version of costopt refuses a submission."""
        self._registry = registry
        self._check = check
        self._checked: dict[str, Submission] = {}
        self._is_open = is_open
        self._jobs: dict[str, Submission] = {}
        self._due_at: dict[str, datetime] = {}
        self._occurrences: dict[str, list[str]] = {}
        self._is_first = True
        self.troubles: dict[str, str] = {}

    def accept(self, submission: Submission) -> bool:
        """Accept a new or changed submission; return whether it is of a recurring job."""
        if submission.schedule:
            known = self._occurrences.setdefault(submission.schedule, [])
            if submission.name not in known:
                known.append(submission.name)
            return False
        try:
            if parse_schedule(submission.job_document) is None:
                return False
        except SpecError:
            return False
        self._jobs[submission.name] = submission
        return True

    def submit_due(self, now: datetime) -> bool:
        """Submit what is due; return whether anything was. Raise LedgerError."""
        submitted = False
        for name, submission in tuple(self._jobs.items()):
            if submission.desired_state is DesiredState.CANCELLED:
                del self._jobs[name]
                self.troubles.pop(name, None)
                self._checked.pop(name, None)
                continue
            try:
                if self._checked.get(name) != submission:
                    self._check(submission)
                    self._checked[name] = submission
                    self.troubles.pop(name, None)
                submitted |= self._submit_due(submission, now)
            except LedgerError:
                raise
            except Exception as error:
                if not isinstance(error, SpecError):
                    log.exception("recurring job %s cannot be submitted", name)
                self.troubles[name] = failure_message(error)
        self._is_first = False
        return submitted

    def _submit_due(self, submission: Submission, now: datetime) -> bool:
        name = submission.name
        due_at = self._due_at.get(name)
        if due_at is not None and now < due_at:
            return False
        schedule = parse_schedule(submission.job_document)
        assert schedule is not None
        cursor = self._registry.schedule_cursor(name) or submission.submitted_at
        times = _due(schedule, cursor, now)
        self._due_at[name] = next(schedule.occurrences(max(cursor, now)), NEVER)
        if not times:
            return False
        if submission.desired_state is DesiredState.PAUSED:
            self._registry.submit_occurrences(name, now, (), ())
            return False
        missed = [at for at in times if self._is_first and now - at > RESTART]
        chosen, skipped = _caught_up(schedule.catch_up, times, missed)
        chosen, overlapping = self._without_overlap(schedule.overlap, name, chosen)
        due = [_occurrence(submission, at, now if at in missed else at) for at in chosen]
        reasons = [f"{_text(at)}: missed, as no daemon ran" for at in skipped]
        reasons += [f"{_text(at)}: an earlier occurrence is not over" for at in overlapping]
        if schedule.overlap is Overlap.CANCEL and due:
            for earlier in self._open(name):
                self._registry.set_desired_state(earlier, DesiredState.CANCELLED, SCHEDULER, now)
        self._submit(name, now, due, reasons)
        self.troubles.pop(name, None)
        return bool(due)

    def _submit(self, name: str, now: datetime, due: list[Submission], reasons: list[str]) -> None:
        try:
            self._registry.submit_occurrences(name, now, due, reasons)
        except SpecError as error:
            # Somebody else's job has the name of an occurrence.
            self._registry.submit_occurrences(name, now, (), [*reasons, error.message])
            raise

    def _without_overlap(
        self, overlap: Overlap, name: str, times: list[datetime]
    ) -> tuple[list[datetime], list[datetime]]:
        """Return the times that take place, and those that another one is in the way of."""
        if overlap is Overlap.ALLOW:
            return times, []
        if overlap is Overlap.CANCEL:
            return times[-1:], times[:-1]
        first = 0 if self._open(name) else 1
        return times[:first], times[first:]

    def _open(self, name: str) -> list[str]:
        still_open = [each for each in self._occurrences.get(name, ()) if self._is_open(each)]
        self._occurrences[name] = still_open
        return still_open


def _due(schedule: Schedule, cursor: datetime, now: datetime) -> list[datetime]:
    """Return the newest occurrences after the cursor, until now."""
    newest: deque[datetime] = deque(maxlen=MAX_DUE)
    for at in schedule.occurrences(cursor):
        if at > now:
            break
        newest.append(at)
    return list(newest)


def _caught_up(
    catch_up: CatchUp, times: list[datetime], missed: list[datetime]
) -> tuple[list[datetime], list[datetime]]:
    """Return the times that take place, and the missed ones that do not."""
    on_time = times[len(missed) :]
    if catch_up is CatchUp.ALL:
        return times, []
    if catch_up is CatchUp.ONE and missed and not on_time:
        return missed[-1:], missed[:-1]
    return on_time, missed


def _occurrence(submission: Submission, at: datetime, submitted_at: datetime) -> Submission:
    return replace(
        submission,
        name=occurrence_name(submission.name, at),
        job_document=occurrence_document(submission.job_document, at),
        submitted_at=submitted_at,
        schedule=submission.name,
    )


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%MZ")
