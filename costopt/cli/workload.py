"""`costopt fleet workloads`: imports and shows records of jobs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from costopt.cli.options import instant, output_option, print_table

FORMAT_NAMES = ("philly", "acme", "helios", "alibaba-gpu", "alibaba-spot", "sacct", "csv")
"""Those of costopt.workload.formats, which is imported on use; a test compares them."""
MAX_SHOWN = 8

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def workloads() -> None:
    """Import and show records of a cluster's jobs.

    A workload holds when jobs were submitted, by which tenant, for how many GPUs, and how long they
    ran.
    """


@workloads.command(name="import")
@click.argument("record", metavar="FILE", type=FILE)
@click.option("--format", "form", required=True, type=click.Choice(FORMAT_NAMES),
              help="The form of the record.")  # fmt: skip
@click.option("--out", type=FILE, required=True, metavar="FILE",
              help="The .parquet or .csv file to write.")  # fmt: skip
@click.option("--start", callback=instant, metavar="TIME",
              help="Where times that count from a start begin.")  # fmt: skip
@click.option("--tenant", metavar="NAME", help="The tenant of all jobs, instead of the record's.")
@click.option("--work-declared", is_flag=True,
              help="Let schedulers know how long each job takes.")  # fmt: skip
def import_(
    record: Path, form: str, out: Path, start: datetime | None, tenant: str | None,
    work_declared: bool,
) -> None:  # fmt: skip
    """Convert a public record, or the output of sacct, into a workload.

    \b
    philly        cluster_job_log of github.com/msr-fiddle/philly-traces
    acme          trace_seren.csv, trace_kalos.csv of github.com/InternLM/AcmeTrace
    helios        cluster_log.csv of github.com/S-Lab-System-Group/HeliosData
    alibaba-gpu   openb_pod_list_*.csv of github.com/alibaba/clusterdata (2023)
    alibaba-spot  job_info_df.csv of the same (2026)
    sacct         sacct --parsable2 --allocations \\
                    --format JobID,Account,JobName,State,Submit,Start,End,AllocTRES
    csv           job_id,tenant,submit_at,duration_s,gpus and optional columns

    Rows that make no sense are left out; how many, and why, is printed.
    """
    from costopt.cli.errors import print_error
    from costopt.workload.formats import import_workload
    from costopt.workload.workload_file import write_workload

    made, left = import_workload(record, form, start_at=start, tenant=tenant)
    if work_declared:
        made = made.with_declared_work()
    for each in left[:MAX_SHOWN]:
        print_error("note", str(each))
    if len(left) > MAX_SHOWN:
        rows = sum(each.rows for each in left[MAX_SHOWN:])
        print_error("note", f"{rows:,} rows left out for {len(left) - MAX_SHOWN} other reasons")
    write_workload(made, out)
    tenants = "1 tenant" if len(made.tenants) == 1 else f"{len(made.tenants)} tenants"
    rows = sum(each.rows for each in left)
    click.echo(f"wrote {out}: {len(made.jobs):,} jobs of {tenants}, {rows:,} rows left out",
               err=True)  # fmt: skip


@workloads.command()
@click.argument("file", metavar="FILE", type=FILE)
@output_option
def show(file: Path, output: str) -> None:
    """Show arrivals, sizes and load of a workload, by tenant."""
    from costopt.views.workload import workload_table
    from costopt.workload.workload_file import read_workload

    print_table(workload_table(read_workload(file)), output)
