"""Rows of a run's table that only some runs have."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.formatting import number_text, usd_micros_text
from costopt.ledger.summary import JobSummary

RunRow = tuple[str, str, str]
"""Figure, value and basis."""


def budget_rows(summary: JobSummary) -> Iterator[RunRow]:
    if summary.budget_usd_micros is None:
        return
    budget, forecast = usd_micros_text(summary.budget_usd_micros), summary.forecast_usd_micros
    if forecast is None or summary.finished_at is not None:
        yield ("  of a budget of", budget, "job file")
        return
    rate = f"{usd_micros_text(summary.usd_micros_per_hour)}/h"
    yield ("  of a budget of", budget, f"in all {usd_micros_text(forecast)} at {rate} as now")


def task_rows(summary: JobSummary) -> tuple[RunRow, ...]:
    """Rows only where the work is tasks. A lost node's are started again, so starts are more."""
    ended = summary.tasks_done + summary.tasks_failed
    if not ended:
        return ()
    counts = f"{summary.tasks_done} done, {summary.tasks_failed} failed"
    return (("tasks ended", f"{counts}, in {summary.task_starts} starts", "measured"),)


def cache_rows(summary: JobSummary) -> tuple[RunRow, ...]:
    """A row only where nodes fetched a cache; its speed is what ``cache.gbps`` of a file means."""
    if summary.cache_gib <= 0 or summary.cache_node_s <= 0:
        return ()
    gbps = summary.cache_gib * GIGABITS_PER_GIB / summary.cache_node_s
    fetched = f"{number_text(summary.cache_gib)} GiB, {number_text(gbps)} Gbit/s per node"
    return (("cache fetched", fetched, "measured"),)


def result_rows(summary: JobSummary) -> tuple[RunRow, ...]:
    """A row only where the trainers said how exact it is."""
    return (("result", summary.guarantee, "trainers"),) if summary.guarantee else ()


def health_rows(summary: JobSummary) -> tuple[RunRow, ...]:
    """Rows only where nodes were or are unhealthy."""
    replaced = ("unhealthy nodes replaced", str(summary.replaced_nodes), "measured")
    known = ("node health", summary.health, "agents")
    return (replaced,) * (summary.replaced_nodes > 0) + (known,) * bool(summary.health)


def storage_rows(summary: JobSummary) -> tuple[RunRow, ...]:
    """A row only where disks or checkpoints cost anything, or their price is unknown."""
    if summary.storage_usd_micros == 0:
        return ()
    basis = "list price of volumes and checkpoints"
    return (("  on disks and storage", usd_micros_text(summary.storage_usd_micros), basis),)


def transfer_rows(summary: JobSummary) -> tuple[RunRow, ...]:
    """A row only where something was moved."""
    if summary.transfer_usd_micros == 0:
        return ()
    return (("  on moving data", usd_micros_text(summary.transfer_usd_micros), "list price"),)


def term_rows(summary: JobSummary) -> Iterator[RunRow]:
    """Rows only where terms of the account changed prices."""
    if summary.list_usd_micros != summary.usd_micros:
        yield ("  at list prices", usd_micros_text(summary.list_usd_micros), "the provider's list")
    if summary.committed_usd_micros != 0:
        used = usd_micros_text(summary.committed_usd_micros)
        yield ("  of commitments, besides", used, "paid whether used or not")
