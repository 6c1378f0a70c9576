"""How far the ledger's dollars are from the provider's own accounts."""

from __future__ import annotations

from costopt.domain.bill import ProviderCharge
from costopt.report.figure import time_text, usd_micros_text
from costopt.report.run import RunView


def ledger_drift(charge: ProviderCharge, run: RunView) -> str:
    """Both figures for the provider's nodes and the difference, in a sentence."""
    counted_micros = sum(
        row.usd_micros for row in run.intervals if row.pool.provider == charge.provider
    )
    billed_micros = round(charge.usd * 1_000_000)
    off = counted_micros - billed_micros
    share = f" ({off / billed_micros:+.1%})" if billed_micros else ""
    days = f"{time_text(charge.from_at)[:10]} up to {time_text(charge.until_at)[:10]}"
    return (
        f"{charge.provider} billed {usd_micros_text(billed_micros)} for job {charge.job} "
        f"from {days} "
        f"({charge.source}); the ledger counts {usd_micros_text(counted_micros)}, "
        f"{usd_micros_text(abs(off))}{share} {'more' if off >= 0 else 'less'}."
    )
