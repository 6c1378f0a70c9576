"""A bill: that of a month, with a row per provider, commitment and credit, and a job's."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.fleet import ProviderCharge
from costopt.domain.money import to_micros
from costopt.formatting import percent_text, usd_micros_text
from costopt.ledger.month_bill import MonthBill
from costopt.ledger.run_view import RunView
from costopt.render.table import Column, Row, Table

BILL_COLUMNS = (
    Column("item", "Item"),
    Column("list_usd_micros", "At list prices", usd_micros_text, right=True),
    Column("used_usd_micros", "Used", usd_micros_text, right=True),
    Column("used_share", "Used %", percent_text, right=True),
    Column("usd_micros", "Billed", usd_micros_text, right=True),
)
BILL_NOTE = (
    "What runs in the account beside these jobs is not in it. A commitment is billed whether it is "
    "used or not; nodes add what it does not cover."
)


def bill_table(bill: MonthBill) -> Table:
    """Return the table; JSON holds micro-dollars."""
    return Table(
        "costopt.bill/1",
        f"Bill of {bill.start:%B %Y}, until {bill.end:%Y-%m-%d %H:%MZ}",
        BILL_COLUMNS,
        list(_rows(bill)),
        notes=(BILL_NOTE,),
    )


def _rows(bill: MonthBill) -> Iterator[Row]:
    for each in bill.providers:
        yield {
            "item": f"nodes at {each.provider}",
            "list_usd_micros": each.list_usd_micros,
            "usd_micros": each.usd_micros,
        }
    if bill.transfer_usd_micros:
        yield {"item": "moving data", "usd_micros": bill.transfer_usd_micros}
    for use in bill.commitments:
        yield {
            "item": f"{use.commitment.kind.value.replace('_', ' ')} {use.commitment.name}",
            "used_usd_micros": use.used_usd_micros,
            "used_share": use.used_share,
            "usd_micros": use.usd_micros,
        }
    yield {"item": "in all", "usd_micros": bill.usd_micros}
    for name, usd_micros in bill.credits.items():
        yield {"item": f"credit {name}", "usd_micros": -usd_micros}
    if bill.credits:
        yield {"item": "to be paid", "usd_micros": bill.paid_usd_micros}


def ledger_drift(charge: ProviderCharge, run: RunView) -> str:
    """Both figures for the provider's nodes and the difference, in a sentence."""
    counted_micros = sum(
        row.usd_micros for row in run.intervals if row.pool.provider == charge.provider
    )
    billed_micros = to_micros(charge.usd)
    off = counted_micros - billed_micros
    share = f" ({off / billed_micros:+.1%})" if billed_micros else ""
    days = f"{charge.from_at:%Y-%m-%d} up to {charge.until_at:%Y-%m-%d}"
    return (
        f"{charge.provider} billed {usd_micros_text(billed_micros)} for job {charge.job} "
        f"from {days} "
        f"({charge.source}); the ledger counts {usd_micros_text(counted_micros)}, "
        f"{usd_micros_text(abs(off))}{share} {'more' if off >= 0 else 'less'}."
    )
