"""`costopt export bill`: a month of an account, with its commitments and credits."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

from costopt.cli.options import (
    DEFAULT_STATE_DIR,
    account_option,
    complete_file,
    output_option,
    print_table,
)


def _month(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", text) and text[:4] != "0000":
        return datetime(int(text[:4]), int(text[5:]), 1, tzinfo=UTC)
    raise click.BadParameter(f"expected a month such as 2026-11, got {text!r}", context, option)


@click.command()
@click.argument("ledger", metavar="[LEDGER|FOLDER]", default=str(DEFAULT_STATE_DIR),
                shell_complete=complete_file)  # fmt: skip
@account_option
@click.option("--month", callback=_month, metavar="YYYY-MM",
              help="A calendar month (UTC); default: the present one.")  # fmt: skip
@output_option
def bill(ledger: str, account: str | None, month: datetime | None, output: str) -> None:
    """Show a month's bill with commitments and credits.

    What all jobs of the ledger added to it, how much of each commitment they used, and what credits
    paid. LEDGER is a file or a PostgreSQL URL; FOLDER is the state directory of runs. These are
    costopt's own figures, not an invoice.
    """
    from costopt.api.inputs import load_account
    from costopt.cli.export import opened_ledger
    from costopt.engine.billing import month_of
    from costopt.ledger.fold_cache import require_fold
    from costopt.ledger.month_bill import month_bill
    from costopt.render.bill_table import bill_table

    if account is None:
        raise click.UsageError("Missing option '--account'.")
    terms, present = load_account(account).price_terms, datetime.now(UTC)
    with opened_ledger(ledger) as (events, _):
        folds = [require_fold(events, job) for job in events.jobs()]
    now = max([present, *(fold.last_at for fold in folds)])
    accounts = [fold.account for fold in folds]
    print_table(bill_table(month_bill(accounts, terms, month or month_of(present), now)), output)
