"""What jobs, tenants and the whole account have spent, reckoned once a tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.job import Job
from costopt.engine.journal import Journal

MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class ClosedBill:
    """What a job that is over has cost: in all, and in the month that begins at ``month_at``."""

    tenant: str
    usd_micros: int
    month_at: datetime
    month_usd_micros: int


class Spending:
    """Dollars by job, tenant and account; jobs that were closed keep counting."""

    def __init__(self, journal: Journal, jobs: Mapping[str, Job]) -> None:
        self._journal = journal
        self._jobs = jobs
        self._closed: dict[str, ClosedBill] = {}
        self._now: datetime | None = None
        self._months: dict[str, int] = {}
        self._totals: dict[tuple[str, str | None], int] = {}
        self._together: dict[frozenset[str], int] = {}

    def close(self, job: str, now: datetime) -> None:
        """Keep what a job has cost, before the journal forgets it."""
        account, month_at = self._journal.accounts[job], month_of(now)
        self._closed[job] = ClosedBill(
            self._jobs[job].tenant,
            self._journal.summary(job, now).usd_micros,
            month_at,
            account.usd_micros_between(month_at, now),
        )

    def remember(self, job: str, tenant: str, usd_micros: int, now: datetime) -> None:
        """Count a job that was over before this month began, and is not opened."""
        self._closed[job] = ClosedBill(tenant, usd_micros, month_of(now), 0)

    def reopen(self, job: str) -> None:
        """The journal knows the job again."""
        self._closed.pop(job, None)

    def usd(self, now: datetime, tenant: str | None = None) -> float:
        """What all jobs have cost, or those of a tenant."""
        self._turn_to(now)
        total = self._totals.get(("all", tenant))
        if total is None:
            jobs = self._open(tenant)
            total = sum(self._journal.summary(job, now).usd_micros for job in jobs)
            total += sum(bill.usd_micros for bill in self._bills(tenant))
            self._totals["all", tenant] = total
        return total / MICROS

    def month_usd(self, now: datetime, tenant: str | None = None) -> float:
        """The same since the calendar month (UTC) began."""
        self._turn_to(now)
        total = self._totals.get(("month", tenant))
        if total is None:
            month_at = month_of(now)
            total = sum(self._month_micros(job, now) for job in self._open(tenant))
            bills = (b for b in self._bills(tenant) if b.month_at == month_at)
            total += sum(bill.month_usd_micros for bill in bills)
            self._totals["month", tenant] = total
        return total / MICROS

    def month_usd_of(self, jobs: frozenset[str], now: datetime) -> float:
        """What these jobs cost since the month began; added up once, as each of them may ask."""
        self._turn_to(now)
        if jobs not in self._together:
            self._together[jobs] = sum(self._month_micros(job, now) for job in jobs)
        return self._together[jobs] / MICROS

    def _month_micros(self, job: str, now: datetime) -> int:
        self._turn_to(now)
        if job not in self._months:
            account, month_at = self._journal.accounts[job], month_of(now)
            began = account.submitted
            if began is not None and began.at >= month_at and began.start_at >= month_at:
                self._months[job] = self._journal.summary(job, now).usd_micros
            else:
                self._months[job] = account.usd_micros_between(month_at, now)
        return self._months[job]

    def _open(self, tenant: str | None) -> Iterable[str]:
        jobs = self._jobs.items()
        return (name for name, job in jobs if tenant in (None, job.tenant))

    def _bills(self, tenant: str | None) -> Iterable[ClosedBill]:
        return (bill for bill in self._closed.values() if tenant in (None, bill.tenant))

    def _turn_to(self, now: datetime) -> None:
        if now != self._now:
            self._now = now
            self._months.clear()
            self._totals.clear()
            self._together.clear()


def month_of(now: datetime) -> datetime:
    """When the calendar month (UTC) began."""
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
