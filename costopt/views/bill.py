"""A month's bill of an account as a table: a row per provider, commitment and credit."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.formatting import percent_text, usd_micros_text
from costopt.ledger.month_bill import MonthBill
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
        [{**dict.fromkeys(_KEYS), **row} for row in _rows(bill)],
        notes=(BILL_NOTE,),
    )


_KEYS = tuple(column.key for column in BILL_COLUMNS)


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
