"""`costopt status`: jobs, one job, or the tasks of an array, from a ledger or a daemon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import instant, output_option, print_table
from costopt.domain.control import JobFilter
from costopt.formatting import minute_text
from costopt.render.table import Column, Row, Table

if TYPE_CHECKING:
    from costopt.source.base import Source

UPCOMING = (
    Column("at", "At", minute_text),
    Column("job", "Job"),
    Column("schedule", "Schedule"),
    Column("tenant", "Tenant", rank=1),
    Column("deadline_at", "Deadline", minute_text),
)


@click.command()
@click.argument("job", required=False)
@click.option("--tasks", is_flag=True, help="The tasks of JOB, an array, with their results.")
@click.option("--upcoming", is_flag=True, help="The next twenty occurrences of recurring jobs.")
@click.option(
    "--state",
    type=click.Choice([each.value for each in JobFilter]),
    default=JobFilter.RECENT.value,
    show_default=True,
    help="Only these jobs; recent: those that are open, and the last 50 that ended.",
)
@click.option("--tenant", help="Only this tenant's jobs.")
@click.option("--name", default="", show_default=False, help="Only jobs with this in their name.")
@click.option("--since", callback=instant, help="Only jobs submitted at or after this time.")
@source_options
@output_option
def status(
    job: str | None, tasks: bool, upcoming: bool, state: str, tenant: str | None, name: str,
    since: datetime | None, source: OpenSource, output: str,
) -> None:  # fmt: skip
    """Show progress and costs of jobs.

    Without JOB, list the jobs of a ledger or a daemon. The figures are available while a job runs
    and after it. Blocked gives the reason why a daemon's job gets no nodes now. With --tasks, the
    tasks of an array that ended are listed, with their parameters and the numbers of their results.
    """
    from costopt.ledger.job_query import JobQuery
    from costopt.views.job import job_table, jobs_table

    if (tasks and job is None) or (upcoming and job is not None):
        raise click.UsageError("--tasks is about one JOB, and --upcoming about all")
    with source() as runs:
        if upcoming:
            table = _upcoming(runs)
        elif job is None:
            query = JobQuery(JobFilter(state), tenant, name, since)
            table = jobs_table(runs.rows(query), output)
        elif tasks:
            table = _tasks(runs, job)
        else:
            row = runs.row(job)
            table = replace(job_table(row, output), more=_nodes(row["nodes"]))
    print_table(table, output)


def _nodes(nodes: Sequence[Row]) -> tuple[Table, ...]:
    """Return the table of a job's living nodes, with what their source knows of them."""
    from costopt.views.node import NODE_COLUMNS

    if not nodes:
        return ()
    shown = ("node_id", "pool", "state", "launched_at", "usd_per_hour", "draining", "health")
    columns = tuple(each for each in NODE_COLUMNS if each.key in shown and each.key in nodes[0])
    return (Table("costopt.status.nodes/1", "Nodes", columns, nodes),)


def _upcoming(source: Source) -> Table:
    from costopt.source.daemon import DaemonSource

    if not isinstance(source, DaemonSource):
        raise click.UsageError(f"--upcoming is about the jobs of a daemon, not {source.name}")
    rows = source.occurrences()
    if not rows:
        click.echo("note: no job with a schedule is to run", err=True)
    return Table("costopt.upcoming/1", "Upcoming", UPCOMING, rows)


def _tasks(source: Source, job: str) -> Table:
    from costopt.views.task import tasks_table

    account = source.job(job).account()
    total = None if account.submitted is None else account.submitted.work_units
    if account.submitted is not None and account.submitted.unit != "tasks":
        raise click.UsageError(f"job {job!r} is not an array: see `costopt status {job}`")
    return tasks_table(job, account.work.tasks.values(), total)
