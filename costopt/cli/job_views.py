"""The commands that show a daemon's jobs: list and show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from costopt.cli.connection import connect, server_options
from costopt.cli.options import instant, output_option, print_table
from costopt.domain.control import JobFilter
from costopt.formatting import (
    iso_minute_text,
    number_text,
    percent_text,
    pool_text,
    seconds_text,
    usd_text,
)
from costopt.render.table import Column, OutputFormat, Row, Table

COLUMNS = (
    Column("job", "Job"),
    Column("state", "State"),
    Column("desired_state", "Desired"),
    Column("priority", "Priority", right=True, rank=4),
    Column("tenant", "Tenant", rank=3),
    Column("nodes", "Nodes", right=True, rank=1),
    Column("done_share", "Done", percent_text, right=True),
    Column("usd", "Spent", usd_text, right=True),
    Column("slack_s", "Slack", seconds_text, right=True, rank=2),
    Column("blocked_by", "Blocked by", fold_at=40),
)
NODES = (
    Column("node_id", "Node"),
    Column("pool", "Pool", pool_text),
    Column("state", "State"),
    Column("launched_at", "Launched", iso_minute_text, rank=2),
    Column("usd_per_hour", "$/h", usd_text, right=True),
    Column("draining", "Draining", rank=1),
)
SCHEDULED = "scheduled"
"""The state of a recurring job, whose occurrences are jobs of their own."""
FIGURES = (Column("figure", "Figure"), Column("value", "Value", fold_at=70))


UPCOMING = (
    Column("at", "At", iso_minute_text),
    Column("job", "Job"),
    Column("schedule", "Schedule"),
    Column("tenant", "Tenant", rank=1),
    Column("deadline_at", "Deadline", iso_minute_text),
)


@click.command("list")
@click.option("--upcoming", is_flag=True, help="The next twenty occurrences of recurring jobs.")
@click.option(
    "--state",
    type=click.Choice([each.value for each in JobFilter]),
    default=JobFilter.RECENT.value,
    show_default=True,
    help="Only these jobs; recent: those that are open, and the last 50 that ended.",
)
@click.option("--tenant", help="Only this tenant's jobs.")
@click.option("--name", help="Only jobs with this in their name.")
@click.option("--since", callback=instant, help="Only jobs submitted at or after this time.")
@server_options
@output_option
def list_(
    upcoming: bool,
    state: str,
    tenant: str | None,
    name: str | None,
    since: datetime | None,
    server: str,
    token_file: Path | None,
    output: str,
) -> None:
    """List a daemon's jobs.

    Blocked by gives the reason why a job gets no nodes now.
    """
    client = connect(server, token_file)
    if upcoming:
        occurrences = client.get("occurrences")["occurrences"]
        print_table(Table("costopt.upcoming/1", "Upcoming", UPCOMING, occurrences), output)
        if not occurrences:
            click.echo("note: no job with a schedule is to run", err=True)
        return
    since_text = None if since is None else since.isoformat()
    jobs = client.get_all(
        "jobs", rows="jobs", state=state, tenant=tenant, name=name, since=since_text
    )
    rows = [_row(job) for job in jobs]
    print_table(Table("costopt.list/1", "Jobs", COLUMNS, rows), output)


@click.command()
@click.argument("job")
@server_options
@output_option
def show(job: str, server: str, token_file: Path | None, output: str) -> None:
    """Show one job of a daemon.

    The json form holds every figure, the last decision and the living nodes.
    """
    answer = connect(server, token_file).get("jobs", job)
    if output in (OutputFormat.JSON, OutputFormat.CSV):
        print_table(Table("costopt.show/1", job, NODES, answer["nodes"], facts=answer), output)
        return
    print_table(Table("costopt.show/1", job, FIGURES, _figures(answer)), output)
    if answer["nodes"]:
        print_table(Table("costopt.show.nodes/1", "Nodes", NODES, answer["nodes"]), output)


def _row(job: dict[str, Any]) -> Row:
    summary, submission = job["summary"], job["submission"]
    return {
        "job": submission["name"],
        "state": SCHEDULED if job["next_at"] else summary["state"],
        "desired_state": submission["desired_state"],
        "priority": submission["priority"],
        "tenant": submission["tenant"],
        "nodes": summary["nodes_alive"],
        "done_share": summary["done_share"],
        "usd": summary["usd"],
        "slack_s": job["slack_s"],
        "blocked_by": job["blocked_by"],
    }


def _figures(answer: dict[str, Any]) -> list[Row]:
    summary, submission, decision = answer["summary"], answer["submission"], answer["decision"]
    figures = {
        "State": SCHEDULED if answer["next_at"] else summary["state"],
        "Next occurrence": answer["next_at"] and iso_minute_text(answer["next_at"]),
        "Occurrence of": submission["schedule"] or None,
        "Failed because": summary["failure"] or None,
        "Desired": submission["desired_state"],
        "Blocked by": answer["blocked_by"] or None,
        "Tenant": submission["tenant"],
        "Priority": submission["priority"],
        "Submitted": (
            f"{iso_minute_text(submission['submitted_at'])} by {submission['submitted_by']}"
        ),
        "Deadline": iso_minute_text(summary["deadline_at"]),
        "Slack": seconds_text(answer["slack_s"]),
        "Done": percent_text(summary["done_share"]),
        "Spent": usd_text(summary["usd"]),
        "kWh": number_text(summary["kwh"]),
        "Interruptions": summary["interruptions"],
        "Node health": summary["health"] or None,
        "Replaced nodes": summary["replaced_nodes"] or None,
        "Expected": _expected(answer.get("forecast"), summary["now"]),
        "Last decision": None if decision is None else decision["decision_id"],
        "Because": None if decision is None else decision["reason"],
    }
    return [{"figure": key, "value": value} for key, value in figures.items() if value is not None]


def _expected(made: Mapping[str, Any] | None, now: str) -> str | None:
    """Return the forecast with its age, None before one was made."""
    if made is None:
        return None
    age = datetime.fromisoformat(now) - datetime.fromisoformat(made["made_at"])
    done, latest = (iso_minute_text(made[key]) for key in ("finish_p50_at", "finish_p95_at"))
    dollars = f"{usd_text(made['usd'])} in all (P95 {usd_text(made['usd_p95'])})"
    made_text = f"made {seconds_text(max(0.0, age.total_seconds()))} ago of {made['source']}"
    return f"{dollars}, done {done} (P95 {latest}); {made_text}"
