"""costopt events"""

from __future__ import annotations

import json
from pathlib import Path

import click

from costopt.cli.output import output_option
from costopt.cli.state import state_dir_option


@click.command()
@click.argument("job", required=False)
@state_dir_option
@click.option("--after", type=int, default=0, metavar="SEQ", help="Only events after this number.")
@output_option
def events(job: str | None, state_dir: Path, after: int, output: str) -> None:
    """List the facts that the ledger holds.

    Every event has a number; the json form holds each event's every field.
    """
    from costopt.cli.ledger_view import check_known, open_existing_ledger
    from costopt.cli.output import print_table
    from costopt.ledger.codec import encode
    from costopt.render.events import describe_event
    from costopt.render.table import Column, Row, Table

    rows: list[Row] = []
    with open_existing_ledger(state_dir) as ledger:
        if job is not None:
            check_known(ledger, state_dir, job)
        for recorded in ledger.events(job, after=after):
            told = describe_event(recorded.event)
            rows.append(
                {
                    "seq": recorded.seq,
                    "at": told.at,
                    "job": recorded.event.job,
                    "event": told.what,
                    "detail": told.detail,
                    "fields": json.loads(encode(recorded.event)),
                }
            )
    columns = (
        Column("seq", "#", right=True),
        Column("at", "Time (UTC)"),
        Column("job", "Job"),
        Column("event", "Event"),
        Column("detail", "Detail"),
        Column("fields", "Fields", detail=True),
    )
    print_table(Table("costopt.events/1", "Events", columns, rows), output)
