"""`costopt report --format ghg`: energy and emissions of all jobs by month and region."""

from __future__ import annotations

from pathlib import Path

from costopt.domain.errors import StoreError
from costopt.render.table import OutputFormat

_BY_SUFFIX = {".csv": OutputFormat.CSV, ".json": OutputFormat.JSON, ".md": OutputFormat.MD}


def write_ghg_report(state_dir: Path, job: str | None, to: Path, account_file: str | None) -> Path:
    """Write the inventory of one job or of all; CSV, JSON or Markdown by the ending of ``to``, else
    a page. The contracts of an account file count in place of those in the ledger.

    Raises LedgerError, SpecFileError and StoreError.
    """
    from costopt.api.ledgers import LedgerReader
    from costopt.domain.contracts import contract_terms
    from costopt.domain.events import CarbonIntensityRecorded, ElectricityContractsRecorded
    from costopt.planning.request import load_account
    from costopt.render.ghg import JobBooks, ghg_table
    from costopt.render.writers import write_table

    account = None if account_file is None else load_account(account_file)
    books: list[JobBooks] = []
    with LedgerReader(state_dir) as reader:
        for name in reader.jobs() if job is None else (job,):
            run = reader.job(name)
            events = (recorded.event for recorded in run.events())
            hours = tuple(each for each in events if isinstance(each, CarbonIntensityRecorded))
            job_account, at = run.account(), run.now()
            if account is not None:
                terms = tuple(map(contract_terms, account.electricity_contracts))
                job_account.apply(ElectricityContractsRecorded(at=at, job=name, contracts=terms))
            books.append(JobBooks(job_account, hours, at))
    output = _BY_SUFFIX.get(to.suffix.lower(), OutputFormat.HTML)
    try:
        with to.open("w", encoding="utf-8", newline="") as file:
            write_table(ghg_table(books), output, file)
    except OSError as error:
        raise StoreError(
            f"{to} cannot be written: {error.strerror}", hint="name another file with --to"
        ) from error
    return to
