"""Loads submissions in the tick, which must not wait for a file system that does not answer.

The tasks of an array may be rows of a file in the job's folder.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread

from costopt.daemon.intake.admission import AdmittedJob
from costopt.domain.control import Submission
from costopt.domain.errors import StoreError

TIMEOUT_S = 2.0


class SubmissionLoader:
    """Calls ``load`` in a thread; while one call hangs, others of its folder fail at once."""

    def __init__(self, load: Callable[[Submission], AdmittedJob]) -> None:
        self._load = load
        self._hung: dict[str, Future[AdmittedJob]] = {}

    def load(self, submission: Submission) -> AdmittedJob:
        """Return the job of a submission. Raise what ``load`` raises, and StoreError if it takes
        too long."""
        if "array" not in submission.job_document:
            return self._load(submission)  # it reads no file
        folder = submission.workdir
        hung = self._hung.get(folder)
        if hung is None or hung.done():
            hung = self._hung[folder] = self._start(submission)
            try:
                return hung.result(TIMEOUT_S)
            except TimeoutError:
                pass
        raise StoreError(
            f"{folder} does not answer",
            hint="see whether it is on a file system that hangs",
            code="unreadable",
        )

    def _start(self, submission: Submission) -> Future[AdmittedJob]:
        future: Future[AdmittedJob] = Future()

        def run() -> None:
            try:
                future.set_result(self._load(submission))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)

        # A daemon thread: a read that never returns must not keep the process from ending.
        Thread(target=run, name="submission", daemon=True).start()
        return future
