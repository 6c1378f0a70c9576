"""`costopt export`: the ledger as a bill and in formats of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.errors import print_error
from costopt.cli.groups import CommandEntry, LazyGroup

if TYPE_CHECKING:
    from costopt.render.exports.focus import FocusRow, FocusSettings
    from costopt.source.base import Source


COMMANDS = {
    "bill": CommandEntry(
        "costopt.cli.bill", "bill", "Show a month's bill with commitments and credits."
    ),
    "focus": CommandEntry(
        "costopt.cli.export",
        "focus",
        "Write costs, energy and emissions as FOCUS rows, for FinOps tools.",
    ),
    "ghg": CommandEntry(
        "costopt.cli.ghg", "ghg", "Write energy and emissions by month and region."
    ),
}


@click.group(cls=LazyGroup, sections={"Commands": COMMANDS})
def export() -> None:
    """Export the ledger as a bill or for other programs."""


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
              metavar="FILE", help="The file to write; its metadata go beside it.")  # fmt: skip
@click.option("--format", "file_format", type=click.Choice(["csv", "parquet"]), default=None,
              show_default="by the ending of --out, else parquet",
              help="How to write it.")  # fmt: skip
@click.option("--focus-version", type=click.Choice(["1.2", "1.3"]), default="1.2",
              help="The version of the specification.")  # fmt: skip
@click.option("--period", type=click.Choice(["hour", "day"]), default="day",
              help="The length of charge periods, in UTC.")  # fmt: skip
@click.option("--billing-account", metavar="ID", default="costopt-estimate",
              help="The account under which the provider bills.")  # fmt: skip
@source_options
def focus(
    out: Path,
    file_format: str | None,
    focus_version: str,
    period: str,
    billing_account: str,
    source: OpenSource,
) -> None:
    """Write costs, energy and emissions as FOCUS rows, for FinOps tools.

    FOCUS is the FinOps Open Cost and Usage Specification. A node has a row per charge period and
    price. The sum of BilledCost is what `costopt status` shows as spent: estimates, not an invoice.
    """
    from costopt.render.exports.focus import ChargePeriod, FocusSettings
    from costopt.render.exports.focus_columns import FocusVersion
    from costopt.render.exports.focus_file import FocusFormat, write_focus

    chosen = FocusFormat(file_format or ("csv" if out.suffix.lower() == ".csv" else "parquet"))
    settings = FocusSettings(billing_account, ChargePeriod(period))
    with source() as runs:
        totals = write_focus(_rows(runs, settings), out, chosen, FocusVersion(focus_version))
    if totals.unlisted_rows:
        print_error(
            "note",
            f"{totals.unlisted_rows} rows have no list price, as the catalogue holds none: their"
            " ListCost is what was billed",
        )
    click.echo(f"{totals.rows} rows, BilledCost {totals.billed_usd:f} USD", err=True)
    click.echo(out)


def _rows(source: Source, settings: FocusSettings) -> Iterator[FocusRow]:
    """Yield the rows of all jobs, each until its clock's time; note what the file leaves out."""
    from costopt.domain.events import DataMoved
    from costopt.render.exports.focus import focus_rows
    from costopt.source.base import recorded_runs

    for run in recorded_runs(source):
        moves = [event for _, event in run.ledger.newest(DataMoved, run.name)]
        unpriced = sum(move.usd_micros is None for move in moves)
        if unpriced:
            print_error(
                "note", f"{unpriced} transfers of {run.name} have no known price and no row"
            )
        yield from focus_rows(run.account(), moves, run.now(), settings)
