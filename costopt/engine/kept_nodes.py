"""Nodes that live on after their job has failed, so that somebody can look into them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from costopt.domain.job import Job
from costopt.engine.journal import Journal


class KeptNodes:
    """Of each failed job that asks for it, the node on which its command failed last."""

    def __init__(self, journal: Journal, jobs: Mapping[str, Job]) -> None:
        self._journal = journal
        self._jobs = jobs
        self._released: set[str] = set()

    def release(self, job: str) -> None:
        """Keep no node of the job any longer."""
        self._released.add(job)

    def forget(self, job: str) -> None:
        """Drop the state of a job that is no longer controlled, or begins again."""
        self._released.discard(job)

    def find(self, now: datetime) -> frozenset[str]:
        """Return the nodes that are not to be terminated now."""
        kept = set[str]()
        for name, job in self._jobs.items():
            record = self._journal.records[name]
            failed = record.failure
            if failed is None or name in self._released:
                continue
            node_id = failed.node_id or next(iter(record.members), "")
            if now < failed.at + timedelta(seconds=job.keep_failed_s):
                kept.add(node_id)
        return frozenset(kept)
