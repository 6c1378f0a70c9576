"""Refuses a submission whose checkpoint place is that of another job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from costopt.controller.checkpoint_places import (
    check_place,
    check_stored_identity,
    is_folder_place,
)
from costopt.daemon.intake.admission import load_submission
from costopt.daemon.intake.submission_loader import SubmissionLoader
from costopt.daemon.shared_state import SharedState
from costopt.domain.control import DesiredState, Registry
from costopt.domain.job import Job
from costopt.ledger.summary import JobState

OPEN = (DesiredState.RUN, DesiredState.PAUSED)


class PlaceAdmission:
    """Compares a job with those that are not over, for one thread at a time.

    ``prepare_job`` returns a job with the place that its nodes use; ``owner`` is the account's.
    """

    def __init__(
        self,
        registry: Registry,
        board: SharedState,
        prepare_job: Callable[[Job], Job],
        owner: str,
    ) -> None:
        self._registry = registry
        self._board = board
        self._prepare_job = prepare_job
        self._owner = owner
        self._loader = SubmissionLoader(load_submission)
        self._jobs: dict[str, Job] = {}
        self._read_until: int | None = None

    def check(self, job: Job, *, recurring: bool) -> None:
        """Raise SpecError if the job's checkpoint place is that of another open job, or a folder
        that holds another job's checkpoints; a bucket is read before the first launch.

        A job that is ``recurring`` saves in no place of its own.
        """
        prepared = self._prepare_job(job)
        check_place(prepared, self._open_jobs())
        if is_folder_place(prepared) and not recurring:
            check_stored_identity(prepared, self._owner)

    def _open_jobs(self) -> Iterator[Job]:
        self._read_changes()
        for name, job in tuple(self._jobs.items()):
            if self._is_over(name):
                del self._jobs[name]
            else:
                yield job

    def _is_over(self, name: str) -> bool:
        seen = self._board.snapshot
        summary = seen.summaries.get(name)
        return name in seen.closed or (summary is not None and summary.state is JobState.FINISHED)

    def _read_changes(self) -> None:
        """Read only those submissions that have changed, and of the first ones those that are not
        over: a daemon may have seen thousands.
        """
        changes = tuple(self._registry.changes(self._read_until or 0))
        if self._read_until is None:
            found = [s for s in self._registry.submissions(OPEN) if not self._is_over(s.name)]
        else:
            subjects = {change.subject for _, change in changes}
            each = (self._registry.submission(subject) for subject in subjects)
            found = [submission for submission in each if submission is not None]
        self._read_until = max((number for number, _ in changes), default=self._read_until or 0)
        for submission in found:
            self._jobs.pop(submission.name, None)
            if submission.desired_state in OPEN:
                # A job that cannot be built saves nowhere, and must not keep others out.
                with suppress(Exception):
                    job = self._loader.load(submission).job
                    self._jobs[submission.name] = self._prepare_job(job)
