"""A training runtime whose commands fail when a test says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from costopt.domain.job import Job
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import Runtime
from tests.support.forwarding import Forwarding


class FailingRuntime(Forwarding):
    """``failing`` are the jobs whose command fails for good."""

    def __init__(self, inner: Runtime) -> None:
        super().__init__(inner)
        self.failing: set[str] = set()

    def progress(self, job: Job, now: datetime) -> Progress:
        reported: Progress = self._inner.progress(job, now)
        if job.name not in self.failing:
            return reported
        return replace(reported, state=GangState.FAILED, message="exited with 1")
