"""A backtest's outcomes, gathered by policy and told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from costopt.cli.figures import UNKNOWN, length, number, usd
from costopt.cli.output import Column, Row, Table, show
from costopt.domain.events import ProgressReported, WorkLost
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.replay.backtest import Outcome
from costopt.report.backtest_table import BacktestRow

if TYPE_CHECKING:
    from costopt.ledger.summary import JobSummary


NO_HINDSIGHT = (
    "No hindsight optimum: it is defined on a market with a grid, for a gang of fixed size "
    "(min_nodes = max_nodes) that is as fast in every pool."
)


def backtest_rows(outcomes: Sequence[Outcome]) -> list[BacktestRow]:
    """One row per policy in the order they ran, and the hindsight optimum last if it is known."""
    by_label: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_label.setdefault(outcome.label, []).append(outcome)
    rows = [_row(label, group) for label, group in by_label.items()]
    first = next(iter(by_label.values()), [])
    best = [o.hindsight_usd for o in first if o.hindsight_usd is not None]
    if best and len(best) == len(first):
        rows.append(_hindsight(best))
    return rows


def _row(label: str, group: Sequence[Outcome]) -> BacktestRow:
    summaries = [outcome.rehearsal.summary for outcome in group]
    dollars = sorted(s.usd for s in summaries)
    best = [o.hindsight_usd for o in group if o.hindsight_usd is not None]
    known_g = [s.gco2e for s in summaries if s.gco2e is not None]
    finishes = [f for f in map(_finish_s, summaries) if f is not None]
    lost_s = [_lost_s(outcome) for outcome in group]
    return BacktestRow(
        strategy=label,
        runs=len(group),
        mean_usd=fmean(dollars),
        p50_usd=_quantile(dollars, 0.5),
        p95_usd=_quantile(dollars, 0.95),
        kwh=fmean(s.kwh for s in summaries),
        gco2e=fmean(known_g) if len(known_g) == len(summaries) else None,
        finish_s=fmean(finishes) if finishes else None,
        misses=sum(s.on_time is not True for s in summaries),
        interruptions=fmean(s.interruptions for s in summaries),
        switches=fmean(s.pool_switches for s in summaries),
        lost_s=None if None in lost_s else fmean(s for s in lost_s if s is not None),
        hindsight_ratio=fmean(dollars) / fmean(best)
        if len(best) == len(finishes) == len(group)
        else None,
    )


def _hindsight(best: list[float]) -> BacktestRow:
    ordered = sorted(best)
    return BacktestRow(
        strategy="hindsight optimum",
        runs=len(best),
        mean_usd=fmean(best),
        p50_usd=_quantile(ordered, 0.5),
        p95_usd=_quantile(ordered, 0.95),
        kwh=None,
        gco2e=None,
        finish_s=None,
        misses=0,
        interruptions=None,
        switches=None,
        lost_s=None,
        hindsight_ratio=1.0,
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the ordered values."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _finish_s(summary: JobSummary) -> float | None:
    if summary.finished_at is None or summary.start_at is None:
        return None
    return (summary.finished_at - summary.start_at).total_seconds()


def _lost_s(outcome: Outcome) -> float | None:
    """Seconds that the lost work took at the speed reported last before it was lost.

    None where work was lost before any speed was reported.
    """
    lost_s, units_per_s = 0.0, None
    for recorded in outcome.rehearsal.events:
        match recorded.event:
            case ProgressReported(units_per_s=reported) if reported:
                units_per_s = reported
            case WorkLost(units=units) if units > 0:
                if units_per_s is None:
                    return None
                lost_s += units / units_per_s
    return lost_s


def show_rows(
    rows: Sequence[BacktestRow], job: Job, market: MarketHistory, windows: int, output: str
) -> None:
    """The table on stdout."""
    columns = (
        Column("strategy", "Policy"),
        Column("mean_usd", "$ mean", usd, right=True),
        Column("p50_usd", "$ P50", usd, right=True),
        Column("p95_usd", "$ P95", usd, right=True),
        Column("kwh", "kWh", number, right=True),
        Column("gco2e", "kgCO2e", _kilograms, right=True),
        Column("finish_s", "Finish", _hours, right=True),
        Column("misses", "Late", right=True),
        Column("interruptions", "Interruptions", number, right=True),
        Column("switches", "Moves", number, right=True),
        Column("lost_s", "Lost work", length, right=True),
        Column("hindsight_ratio", "× hindsight", _ratio, right=True),
        Column("runs", "Runs", right=True),
    )
    told: list[Row] = [{c.key: getattr(row, c.key) for c in columns} for row in rows]
    span_h = (job.deadline_at - job.start_at).total_seconds() / 3600
    times = "1 window" if windows == 1 else f"{windows} windows"
    table = Table(
        "costopt.backtest/1",
        f"{job.name} on {market.name}: {times} of {span_h:g} h",
        columns,
        told,
        notes=() if any(row.hindsight_ratio for row in rows) else (NO_HINDSIGHT,),
        facts={"job": job.name, "market": market.name, "windows": windows, "deadline_h": span_h},
    )
    show(table, output)


def write_report(rows: Sequence[BacktestRow], outcomes: Sequence[Outcome], path: Path) -> None:
    """The table and the first window's curves as an HTML page."""
    from costopt.report.html import write_backtest_report
    from costopt.report.run import Run

    curves = {
        outcome.label: Run.of(
            (recorded.event for recorded in outcome.rehearsal.events),
            outcome.rehearsal.summary.now,
        ).curves
        for outcome in outcomes
        if outcome.start_at == outcomes[0].start_at
    }
    write_backtest_report(rows, curves, path)


def _kilograms(grams: float | None) -> str:
    return UNKNOWN if grams is None else f"{grams / 1000:.2f}"


def _hours(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds / 3600:.1f} h"


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}"
