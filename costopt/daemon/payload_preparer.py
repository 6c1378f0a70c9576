"""Uploads the files of jobs where their nodes can fetch them, outside the tick."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from costopt.domain.errors import CostoptError
from costopt.domain.job import Job

RETRY_S = 60.0


class PayloadPreparer:
    """The tick requests jobs; another thread prepares each until it succeeds."""

    def __init__(self, receive: Callable[[Job], None], on_ready: Callable[[], None]) -> None:
        self._receive, self._on_ready = receive, on_ready
        self._lock = Lock()
        self._wanted: dict[str, tuple[Job, float]] = {}
        self._ready: set[str] = set()
        self._troubles: dict[str, str] = {}

    def request(self, job: Job) -> None:
        """Request that this job be prepared as soon as possible, even if it was before."""
        with self._lock:
            self._ready.discard(job.name)
            self._wanted[job.name] = job, 0.0

    def forget(self, job: str) -> None:
        """Forget a job that needs no more nodes."""
        with self._lock:
            self._wanted.pop(job, None)
            self._ready.discard(job)
            self._troubles.pop(job, None)

    def is_ready(self, job: str) -> bool:
        """Return whether the job's nodes would find what they need."""
        return job in self._ready

    def error(self, job: str) -> str:
        """Return why the job is not yet prepared; "" if nothing failed."""
        return self._troubles.get(job, "")

    def prepare(self) -> None:
        """Prepare the requested jobs that are due; retry a failure after a minute."""
        with self._lock:
            due = [job for job, at_s in self._wanted.values() if at_s <= time.monotonic()]
        for job in due:
            try:
                self._receive(job)
            except CostoptError as error:
                with self._lock:
                    self._troubles[job.name] = str(error.message)
                    if job.name in self._wanted:
                        self._wanted[job.name] = job, time.monotonic() + RETRY_S
                continue
            with self._lock:
                self._troubles.pop(job.name, None)
                if self._wanted.pop(job.name, None) is not None:
                    self._ready.add(job.name)
                    self._on_ready()
