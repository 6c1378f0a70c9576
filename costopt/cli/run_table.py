"""A run's figures as a table for every output format."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

from costopt.cli.output import print_table
from costopt.formatting import number_text, usd_text, whole_percent_text
from costopt.ledger.account import JobAccount
from costopt.ledger.summary import JobSummary
from costopt.render.run_tables import deadline_sentence, run_table
from costopt.render.table import Column, OutputFormat, Row, Table


def show_account(account: JobAccount, now: datetime, output: str) -> None:
    """Figures, values and their basis for people; every raw figure for programs."""
    raw = output in (OutputFormat.JSON, OutputFormat.CSV)
    print_table(summary_table([account.summary(now)]) if raw else run_table(account, now), output)


def summary_table(summaries: list[JobSummary]) -> Table:
    """One row per job with every raw figure."""
    names = [field.name for field in fields(JobSummary)]
    rows: list[Row] = [{name: getattr(s, name) for name in names} for s in summaries]
    return Table("costopt.status/1", "Jobs", tuple(Column(name, name) for name in names), rows)


def jobs_table(summaries: list[JobSummary]) -> Table:
    """One row per job for people."""
    columns = (
        Column("job", "Job"),
        Column("state", "State"),
        Column("done_share", "Done", whole_percent_text, right=True),
        Column("usd", "Spent", usd_text, right=True),
        Column("kwh", "kWh", number_text, right=True),
        Column("interruptions", "Interruptions", right=True),
        Column("deadline_at", "Deadline"),
        Column("verdict", "Verdict"),
    )
    rows: list[Row] = [
        {
            "job": s.job,
            "state": s.state.value,
            "done_share": s.done_share,
            "usd": s.usd,
            "kwh": s.kwh,
            "interruptions": s.interruptions,
            "deadline_at": s.deadline_at,
            "verdict": deadline_sentence(s),
        }
        for s in summaries
    ]
    return Table("costopt.status/1", "Jobs", columns, rows)
