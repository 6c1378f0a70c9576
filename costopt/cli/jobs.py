"""costopt list and costopt show"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costopt.cli.output import output_option, print_table
from costopt.cli.server import connect, server_options
from costopt.formatting import iso_minute_text, number_text, percent_text, seconds_text, usd_text
from costopt.render.table import Column, OutputFormat, Row, Table

COLUMNS = (
    Column("job", "Job"),
    Column("state", "State"),
    Column("desired_state", "Desired"),
    Column("priority", "Priority", right=True, rank=3),
    Column("tenant", "Tenant", rank=4),
    Column("nodes", "Nodes", right=True, rank=1),
    Column("done_share", "Done", percent_text, right=True),
    Column("usd", "Spent", usd_text, right=True),
    Column("slack_s", "Slack", seconds_text, right=True, rank=2),
    Column("blocked_by", "Blocked by", fold_at=40, rank=1),
)
NODES = (
    Column("node_id", "Node"),
    Column("pool", "Pool"),
    Column("state", "State"),
    Column("launched_at", "Launched", iso_minute_text),
    Column("usd_per_hour", "$/h", usd_text, right=True),
    Column("draining", "Draining"),
)
FIGURES = (Column("figure", "Figure"), Column("value", "Value", fold_at=70))


@click.command("list")
@server_options
@output_option
def list_(server: str, token_file: Path | None, output: str) -> None:
    """List a daemon's jobs.

    Blocked by says why a job gets no nodes now.
    """
    answer = connect(server, token_file).get("jobs")
    rows = [_row(job) for job in answer["jobs"]]
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
        "state": summary["state"],
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
    told = {
        "State": summary["state"],
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
        "Last decision": None if decision is None else decision["decision_id"],
        "Because": None if decision is None else decision["reason"],
    }
    return [{"figure": key, "value": value} for key, value in told.items() if value is not None]
