"""`costopt export bill`: a month of an account, with its commitments and credits."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import account_option, output_option, print_table


def _month(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", text) and text[:4] != "0000":
        return datetime(int(text[:4]), int(text[5:]), 1, tzinfo=UTC)
    raise click.BadParameter(f"expected a month such as 2026-11, got {text!r}", context, option)


@click.command()
@account_option
@click.option("--month", callback=_month, metavar="YYYY-MM",
              help="A calendar month (UTC); default: the present one.")  # fmt: skip
@source_options
@output_option
def bill(account: str | None, month: datetime | None, source: OpenSource, output: str) -> None:
    """Show a month's bill with commitments and credits.

    What all jobs added to it, how much of each commitment of --account they used, and what credits
    paid. These are costopt's own figures, not an invoice.
    """
    from costopt.api.inputs import load_account
    from costopt.engine.billing import month_of
    from costopt.ledger.month_bill import month_bill
    from costopt.source.base import recorded_runs
    from costopt.views.bill import bill_table

    if account is None:
        raise click.UsageError("Missing option '--account'.")
    terms, present = load_account(account).price_terms, datetime.now(UTC)
    with source() as opened:
        runs = [(run.account(), run.now()) for run in recorded_runs(opened)]
    now = max([present, *(at for _, at in runs)])
    accounts = [each for each, _ in runs]
    print_table(bill_table(month_bill(accounts, terms, month or month_of(present), now)), output)
