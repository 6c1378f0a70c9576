"""The figures that one scrape of the daemon's metrics shows, as of the last tick."""

from __future__ import annotations

from datetime import UTC, datetime

from costopt import __version__
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import (
    JobMetrics,
    JobStatus,
    MarketView,
    MetricsSnapshot,
    SharedState,
    TickSnapshot,
)
from costopt.domain.control import ProposalState


def collect_metrics(service: DaemonService) -> MetricsSnapshot:
    """Return all metrics, as of the last tick. Raise LedgerError."""
    reader, board = TenantReader(service), service.board
    statuses, seen = reader.jobs(), board.snapshot
    return MetricsSnapshot(
        now=seen.now,
        version=__version__,
        mode=service.mode(),
        halted=service.registry.halted() is not None,
        leads=board.leads,
        jobs=tuple(_figures(s, seen) for s in statuses),
        launches={
            "ok": sum(s.summary.launches for s in statuses),
            "failed": sum(s.summary.failed_launches for s in statuses),
        },
        price_age_s=_price_ages(reader.market()),
        list_age_s=_list_ages(board, datetime.now(UTC)),
        carbon_age_s=dict(board.carbon_ages_s),
        orphans=len(board.orphans),
        tick_count=board.tick_count,
        tick_sum_s=board.tick_sum_s,
        tick_buckets=board.tick_buckets(),
        task_runs=board.task_runs(),
        open_proposals=len(reader.proposals([ProposalState.OPEN])),
        budgets=seen.budgets,
    )


def _figures(status: JobStatus, seen: TickSnapshot) -> JobMetrics:
    name = status.submission.name
    return JobMetrics(
        tenant=status.submission.tenant,
        summary=status.summary,
        deadline_slack_s=status.slack_s,
        is_failing=name in seen.troubles,
        closed=name in seen.closed,
        goodput=seen.goodputs.get(name),
    )


def _list_ages(board: SharedState, now: datetime) -> dict[str, float]:
    """Return the age of each public price list at ``now`` on the wall clock, in seconds."""
    return {name: (now - at).total_seconds() for name, at in board.lists_observed_at.items()}


def _price_ages(market: MarketView) -> dict[str, float]:
    """Return the age of each provider's oldest price, in seconds."""
    ages: dict[str, float] = {}
    for row in market.rows:
        if row.price_age_s is not None:
            name = row.offer.pool.provider
            ages[name] = max(row.price_age_s, ages.get(name, 0.0))
    return ages
