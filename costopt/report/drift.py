"""How far the ledger's dollars are from the provider's own accounts."""

from __future__ import annotations

from costopt.domain.bill import ProviderCharge
from costopt.formatting import usd_micros_text
from costopt.report.run import RunView


def ledger_drift(charge: ProviderCharge, run: RunView) -> str:
    """Both figures for the provider's nodes and the difference, in a sentence."""
    counted_micros = sum(
        row.usd_micros for row in run.intervals if row.pool.provider == charge.provider
    )
    billed_micros = round(charge.usd * 1_000_000)
    off = counted_micros - billed_micros
    share = f" ({off / billed_micros:+.1%})" if billed_micros else ""
    days = f"{charge.from_at:%Y-%m-%d} up to {charge.until_at:%Y-%m-%d}"
    return (
        f"{charge.provider} billed {usd_micros_text(billed_micros)} for job {charge.job} "
        f"from {days} "
        f"({charge.source}); the ledger counts {usd_micros_text(counted_micros)}, "
        f"{usd_micros_text(abs(off))}{share} {'more' if off >= 0 else 'less'}."
    )
