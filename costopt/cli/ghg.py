"""`costopt export ghg`: energy and emissions of all jobs by month and region."""

from __future__ import annotations

from pathlib import Path

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import account_option
from costopt.domain.errors import StoreError
from costopt.render.table import OutputFormat

_BY_SUFFIX = {".csv": OutputFormat.CSV, ".json": OutputFormat.JSON, ".md": OutputFormat.MD}


@click.command()
@click.argument("job", required=False)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("ghg.html"),
              metavar="FILE", help="The file to write: a page, or CSV, JSON or Markdown by its "
              "ending.")  # fmt: skip
@account_option
@source_options
def ghg(job: str | None, out: Path, account: str | None, source: OpenSource) -> None:
    """Write energy and emissions by month and region.

    The inventory of JOB, or of all jobs: energy, location-based and market-based emissions and
    embodied carbon. The electricity contracts of --account count in place of those in the ledger.
    """
    from costopt.domain.contracts import contract_terms
    from costopt.domain.events import CarbonIntensityRecorded, ElectricityContractsRecorded
    from costopt.planning.request import load_account
    from costopt.render.exports.ghg import JobBooks, ghg_table
    from costopt.render.writers import write_table
    from costopt.source.base import recorded_runs

    shared = None if account is None else load_account(account)
    books: list[JobBooks] = []
    with source() as opened:
        for run in recorded_runs(opened) if job is None else (opened.job(job),):
            events = (recorded.event for recorded in run.events())
            hours = tuple(each for each in events if isinstance(each, CarbonIntensityRecorded))
            job_account, at = run.account(), run.now()
            if shared is not None and shared.electricity_contracts:
                terms = tuple(map(contract_terms, shared.electricity_contracts))
                job_account.apply(
                    ElectricityContractsRecorded(at=at, job=run.name, contracts=terms)
                )
            books.append(JobBooks(job_account, hours, at))
    output = _BY_SUFFIX.get(out.suffix.lower(), OutputFormat.HTML)
    try:
        with out.open("w", encoding="utf-8", newline="") as file:
            write_table(ghg_table(books), output, file)
    except OSError as error:
        raise StoreError(
            f"{out} cannot be written: {error.strerror}", hint="name another file with --out"
        ) from error
    click.echo(out)
