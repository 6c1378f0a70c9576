"""A workload: the jobs of a record as arrays, one value per job in the order of submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from costopt.domain.errors import WorkloadError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job as it was recorded. ``duration_s`` is how long it ran on the ``gpus`` it asked for.

    ``smallest_gpus`` and ``largest_gpus`` bound its gang, and ``speeds`` are measured pairs of GPUs
    and work per second in any unit; None and empty where unknown. ``work_declared`` says that a
    scheduler may know the duration beforehand; otherwise it is learned only when the job ends. A
    job has no deadline: ``usd_per_hour_waited`` is what an hour until its end is worth, None where
    all jobs are worth the same.
    """

    job_id: str
    tenant: str
    submit_at: datetime
    duration_s: float
    gpus: int
    name: str = ""
    state: str = ""
    smallest_gpus: int | None = None
    largest_gpus: int | None = None
    work_declared: bool = False
    usd_per_hour_waited: float | None = None
    speeds: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Jobs in the order of submission. ``jobs`` are the recorded ones, the arrays their figures.

    ``submit_s`` counts from ``starts_at``. ``tenant`` and ``name`` are indices into ``tenants`` and
    ``names``.
    """

    title: str
    source: str
    starts_at: datetime
    jobs: tuple[RecordedJob, ...]
    submit_s: Floats
    duration_s: Floats
    gpus: Ints
    tenants: tuple[str, ...]
    tenant: Ints
    names: tuple[str, ...]
    name: Ints

    @classmethod
    def of(
        cls,
        jobs: Sequence[RecordedJob],
        *,
        title: str,
        source: str,
        starts_at: datetime | None = None,
    ) -> Workload:
        """Return the jobs as a workload that starts at midnight (UTC) before the first of them.

        Raise WorkloadError without jobs, and for weights of some jobs only.
        """
        if not jobs:
            raise WorkloadError(f"{title} holds no job that used a GPU", code="no_rows")
        valued = sum(job.usd_per_hour_waited is not None for job in jobs)
        if valued not in (0, len(jobs)):
            raise WorkloadError(
                f"{title}: {valued} of {len(jobs)} jobs say usd_per_hour_waited",
                hint="say it for each job, or for none, which makes all of them worth the same",
                code="partial_values",
            )
        ordered = tuple(sorted(jobs, key=lambda job: (job.submit_at, job.job_id)))
        first = ordered[0].submit_at.astimezone(UTC)
        origin = starts_at or first.replace(hour=0, minute=0, second=0, microsecond=0)
        tenants, tenant = _codes([job.tenant for job in ordered])
        names, name = _codes([job.name for job in ordered])
        return cls(
            title=title,
            source=source,
            starts_at=origin,
            jobs=ordered,
            submit_s=np.array([(job.submit_at - origin).total_seconds() for job in ordered]),
            duration_s=np.array([job.duration_s for job in ordered], dtype=np.float64),
            gpus=np.array([job.gpus for job in ordered], dtype=np.int64),
            tenants=tenants,
            tenant=tenant,
            names=names,
            name=name,
        )

    @property
    def declared(self) -> Flags:
        """Whether the work of each job is known beforehand."""
        return np.array([job.work_declared for job in self.jobs])

    @property
    def weights(self) -> Floats:
        """What an hour until a job's end is worth, in dollars; 1 each where it is not said."""
        return np.array(
            [1.0 if j.usd_per_hour_waited is None else j.usd_per_hour_waited for j in self.jobs]
        )

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last submission."""
        return float(self.submit_s[-1] - self.submit_s[0])

    def at(self, submit_s: float) -> datetime:
        """Return the instant of a time that counts from the start."""
        return self.starts_at + timedelta(seconds=submit_s)

    def window(self, from_at: datetime, days: float) -> tuple[Workload, Workload]:
        """Return what was submitted in a stretch of time, and before it what had ended by then.

        The second part is what a scheduler could have learned from. It may be without jobs; all
        its times count from ``from_at``. Raise WorkloadError if nothing was submitted in time.
        """
        begin_s = (from_at - self.starts_at).total_seconds()
        inside = (self.submit_s >= begin_s) & (self.submit_s < begin_s + days * 86_400)
        if not inside.any():
            raise WorkloadError(
                f"{self.title}: no job was submitted in {days:g} days from {from_at:%Y-%m-%d}",
                hint=f"its jobs are from {self.at(self.submit_s[0]):%Y-%m-%d} to "
                f"{self.at(self.submit_s[-1]):%Y-%m-%d}",
                code="empty_window",
            )
        ended = (self.submit_s + self.duration_s <= begin_s) & (self.submit_s < begin_s)
        return self._where(inside, from_at), self._where(ended, from_at)

    def without_tenants(self, names: Sequence[str]) -> Workload:
        """Return the jobs of the other tenants. Raise WorkloadError for an unknown name."""
        unknown = sorted(set(names) - set(self.tenants))
        if unknown:
            raise WorkloadError(
                f"{self.title}: there is no tenant {unknown[0]!r}",
                hint=f"its tenants are {', '.join(self.tenants)}",
                code="unknown_name",
            )
        left = ~np.isin(self.tenant, [self.tenants.index(name) for name in names])
        jobs = [job for job, is_left in zip(self.jobs, left, strict=True) if is_left]
        return Workload.of(jobs, title=self.title, source=self.source, starts_at=self.starts_at)

    def with_declared_work(self) -> Workload:
        """Return the same jobs, of which a scheduler knows how long they take."""
        return replace(self, jobs=tuple(replace(job, work_declared=True) for job in self.jobs))

    def _where(self, chosen: Flags, from_at: datetime) -> Workload:
        shift_s = (from_at - self.starts_at).total_seconds()
        return replace(
            self,
            starts_at=from_at,
            jobs=tuple(self.jobs[index] for index in np.flatnonzero(chosen)),
            submit_s=self.submit_s[chosen] - shift_s,
            duration_s=self.duration_s[chosen],
            gpus=self.gpus[chosen],
            tenant=self.tenant[chosen],
            name=self.name[chosen],
        )


def _codes(values: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    names = tuple(sorted(set(values)))
    index = {name: number for number, name in enumerate(names)}
    return names, np.array([index[value] for value in values], dtype=np.int64)
