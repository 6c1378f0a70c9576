"""Uploads the files of jobs where their nodes can fetch them, outside the tick."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, Thread, current_thread

from costopt.domain.errors import failure_message
from costopt.domain.job import Job
from costopt.formatting import seconds_text

RETRY_S = 60.0
SLOW_S = 60.0
"""A folder of code is packed and sent in less, unless something is wrong with it."""
MAX_THREADS_PER_TENANT = 8


@dataclass(slots=True, eq=False)
class _Request:
    """One job's request, and how far it is; times are of the monotonic clock."""

    job: Job
    due_at_s: float = 0.0
    began_at_s: float | None = None
    error: str = ""
    prepared: Job | None = None


class PayloadPreparer:
    """The tick requests jobs; each is prepared in a thread until that succeeds.

    One folder is read by one thread at a time: a folder on a file system that hangs delays the jobs
    of that folder, and a tenant with many of them delays only its own jobs.
    """

    def __init__(self, receive: Callable[[Job], Job], on_ready: Callable[[], None]) -> None:
        """``receive`` uploads a job's files, and returns the job as it is to run."""
        self._receive, self._on_ready = receive, on_ready
        self._lock = Lock()
        self._requests: dict[str, _Request] = {}
        self._threads: dict[Thread, Job] = {}

    def request(self, job: Job) -> None:
        """Request that this job be prepared as soon as possible, even if it was before."""
        with self._lock:
            self._requests[job.name] = _Request(job)

    def forget(self, job: str) -> None:
        """Forget a job that needs no more nodes."""
        with self._lock:
            self._requests.pop(job, None)

    def is_ready(self, job: str) -> bool:
        """Return whether the job's nodes would find what they need."""
        return self.prepared(job) is not None

    def prepared(self, job: str) -> Job | None:
        """Return the job as it is to run, None until its nodes would find what they need."""
        request = self._requests.get(job)
        return None if request is None else request.prepared

    def error(self, job: str) -> str:
        """Return why the job could not be prepared so far, or what takes too long; else ""."""
        request = self._requests.get(job)
        if request is None or request.prepared is not None:
            return ""
        began_at_s = request.began_at_s
        if began_at_s is not None and time.monotonic() - began_at_s > SLOW_S:
            return (
                f"packing {request.job.workdir} has taken "
                f"{seconds_text(time.monotonic() - began_at_s)} so far: is it on a file system "
                "that does not answer?"
            )
        return request.error

    def waiting_reason(self, job: str) -> str:
        """Return why the job's nodes cannot be launched yet; "" if they can, or need no files."""
        request = self._requests.get(job)
        if request is None or request.prepared is not None:
            return ""
        return self.error(job) or "its files are being packed and uploaded"

    def prepare(self) -> None:
        """Begin to prepare the requested jobs that are due; a failure is retried after a minute."""
        with self._lock:
            self._start_due()

    def join(self) -> None:
        """Wait until nothing is due or being prepared."""
        while True:
            with self._lock:
                threads = tuple(self._threads)
            if not threads:
                return
            for thread in threads:
                thread.join()

    def _start_due(self) -> None:
        """Start threads, with the lock held."""
        folders = {job.workdir for job in self._threads.values()}
        per_tenant = Counter(job.tenant for job in self._threads.values())
        for request in self._requests.values():
            job = request.job
            if (
                request.prepared is None
                and request.began_at_s is None
                and request.due_at_s <= time.monotonic()
                and job.workdir not in folders
                and per_tenant[job.tenant] < MAX_THREADS_PER_TENANT
            ):
                folders.add(job.workdir)
                per_tenant[job.tenant] += 1
                request.began_at_s = time.monotonic()
                # A read that never returns must not keep the process from ending: daemon=True.
                thread = Thread(target=self._run, args=(request,), name="payload", daemon=True)
                self._threads[thread] = job
                thread.start()

    def _run(self, request: _Request) -> None:
        try:
            request.prepared = self._receive(request.job)
        except Exception as error:  # noqa: BLE001 - whatever one job's files cause is reported
            request.error = failure_message(error)
            request.due_at_s = time.monotonic() + RETRY_S
            request.began_at_s = None
        else:
            self._on_ready()
        with self._lock:
            del self._threads[current_thread()]
            self._start_due()
