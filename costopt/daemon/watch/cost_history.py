"""What jobs cost on each day, and when they had nodes, from the ledger.

An open job's account is retained and continued with its new events. One that is over is folded
once, and again when its figures change, such as when a bill arrives.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from threading import Lock

from costopt.daemon.shared_state import JobStatus
from costopt.domain.ports import Ledger
from costopt.ledger.fold_cache import FoldState, load_fold
from costopt.ledger.job_account import JobAccount
from costopt.ledger.summary import JobSummary, SpendPoint, spend_at

READ_TIMEOUT_S = 2.0
"""Jobs that were not read by then are left to the next call, which finds these ones read."""
DAY = timedelta(days=1)
Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class DayCost:
    """Micro-dollars and watt-hours of one job on one day (UTC); ``wh`` is None if unknown."""

    usd_micros: int
    wh: float | None


@dataclass(frozen=True, slots=True)
class JobCosts:
    """``days`` on which the job had nodes or moved data, and the ``spans`` with nodes, ascending
    and apart."""

    days: Mapping[date, DayCost]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class CostHistory:
    """Costs by job. ``unread`` counts the jobs that there was no time to read."""

    jobs: Mapping[str, JobCosts]
    unread: int = 0


class CostReader:
    """Reads the costs of jobs. Safe to share between threads; one reads at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = Lock()
        self._folds: dict[str, FoldState] = {}
        self._costs: dict[str, tuple[JobSummary, JobCosts]] = {}

    def read(self, statuses: Iterable[JobStatus], since: datetime) -> CostHistory:
        """Return the costs of these jobs, but for those that were over before ``since``.

        May raise LedgerError.
        """
        jobs: dict[str, JobCosts] = {}
        unread = 0
        with self._lock:
            stop_at = time.monotonic() + READ_TIMEOUT_S
            for status in statuses:
                summary = status.summary
                if not summary.nodes_alive and summary.now < since:
                    continue
                costs = self._known(summary)
                if costs is None and time.monotonic() >= stop_at:
                    unread += 1
                    continue
                jobs[summary.job] = costs or self._read(summary)
        return CostHistory(jobs, unread)

    def _known(self, summary: JobSummary) -> JobCosts | None:
        """Return what was read before if it is still true."""
        before, costs = self._costs.get(summary.job, (None, None))
        if before is None or summary.nodes_alive or before.nodes_alive:
            return costs if before is not None and before.now == summary.now else None
        same = before.usd_micros == summary.usd_micros and before.wh == summary.wh
        return costs if same else None

    def _read(self, summary: JobSummary) -> JobCosts:
        # An account that was left half-way through an error is folded from scratch.
        fold = load_fold(self._ledger, summary.job, self._folds.pop(summary.job, None))
        if fold is None:
            return JobCosts({}, ())
        costs = costs_of(fold.account, max(summary.now, fold.last_at))
        self._costs[summary.job] = (summary, costs)
        if summary.finished_at is None:
            self._folds[summary.job] = fold
        return costs


def costs_of(account: JobAccount, now: datetime) -> JobCosts:
    """Return the costs of a job until ``now``."""
    points = account.curves(now).spend
    spans = _merged(
        (row.launched_at, row.ended_at or now)
        for row in account.intervals(now)
        if (row.ended_at or now) > row.launched_at
    )
    if not points:
        return JobCosts({}, spans)
    days: dict[date, DayCost] = {}
    at = points[0].at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    times = [point.at for point in points]
    begin = spend_at(points, times, at)
    while at <= points[-1].at:
        end = spend_at(points, times, at + DAY)
        busy = any(start < at + DAY and stop > at for start, stop in spans)
        if busy or end.usd_micros != begin.usd_micros:
            days[at.date()] = DayCost(end.usd_micros - begin.usd_micros, _between(begin, end, busy))
        at, begin = at + DAY, end
    return JobCosts(days, spans)


def _between(begin: SpendPoint, end: SpendPoint, busy: bool) -> float | None:
    if not busy:
        return 0.0
    return None if begin.wh is None or end.wh is None else end.wh - begin.wh


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)
