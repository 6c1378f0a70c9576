"""costopt status"""

from __future__ import annotations

from pathlib import Path

import click

from costopt.cli.output import output_option
from costopt.cli.state import state_dir_option


@click.command()
@click.argument("job", required=False)
@state_dir_option
@output_option
def status(job: str | None, state_dir: Path, output: str) -> None:
    """Show how far jobs are and what they cost.

    Without JOB, every job of the state directory in a row. The figures are folded from the
    ledger, so they can be had while a job runs and after it.
    """
    from costopt.cli.ledger_view import job_account, job_summaries
    from costopt.cli.output import print_table
    from costopt.render.run_tables import account_table, jobs_table, summary_table
    from costopt.render.table import OutputFormat

    if job is not None:
        print_table(account_table(*job_account(state_dir, job), output), output)
        return
    summaries = job_summaries(state_dir)
    raw = output in (OutputFormat.JSON, OutputFormat.CSV)
    print_table(summary_table(summaries) if raw else jobs_table(summaries), output)
