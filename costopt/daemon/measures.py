"""What is measured of the daemon and its jobs, for monitoring."""

from __future__ import annotations

from collections.abc import Sequence

from costopt import __version__
from costopt.daemon.board import SharedState
from costopt.daemon.snapshot import TickSnapshot
from costopt.daemon.views import JobMetrics, JobStatus, MarketView, MetricsSnapshot
from costopt.domain.control import Mode


def collect_metrics(
    board: SharedState,
    statuses: Sequence[JobStatus],
    market: MarketView,
    *,
    mode: Mode,
    halted: bool,
    open_proposals: int,
) -> MetricsSnapshot:
    """Everything, as of the last tick."""
    seen = board.snapshot
    return MetricsSnapshot(
        now=seen.now,
        version=__version__,
        mode=mode,
        halted=halted,
        leads=board.leads,
        jobs=tuple(_figures(s, seen) for s in statuses),
        launches={
            "ok": sum(s.summary.launches for s in statuses),
            "failed": sum(s.summary.failed_launches for s in statuses),
        },
        price_age_s=_price_ages(market),
        orphans=len(board.orphans),
        tick_count=board.tick_count,
        tick_sum_s=board.tick_sum_s,
        tick_buckets=board.tick_buckets(),
        task_runs=board.task_runs(),
        open_proposals=open_proposals,
    )


def _figures(status: JobStatus, seen: TickSnapshot) -> JobMetrics:
    name = status.submission.name
    return JobMetrics(
        tenant=status.submission.tenant,
        summary=status.summary,
        deadline_slack_s=status.slack_s,
        is_failing=name in seen.troubles,
        closed=name in seen.closed,
    )


def _price_ages(market: MarketView) -> dict[str, float]:
    """The age of the oldest price of each provider."""
    ages: dict[str, float] = {}
    for row in market.rows:
        if row.price_age_s is not None:
            name = row.offer.pool.provider
            ages[name] = max(row.price_age_s, ages.get(name, 0.0))
    return ages
