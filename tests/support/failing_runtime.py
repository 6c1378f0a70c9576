"""A training runtime whose commands fail when a test says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from costopt.domain.job import GangState, Job, Progress
from costopt.domain.runtime import Runtime


class FailingRuntime:
    """``failing`` are the jobs whose command fails for good."""

    def __init__(self, inner: Runtime) -> None:
        self._inner = inner
        self.failing: set[str] = set()

    def progress(self, job: Job, now: datetime) -> Progress:
        reported = self._inner.progress(job, now)
        if job.name not in self.failing:
            return reported
        return replace(reported, state=GangState.FAILED, message="exited with 1")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
