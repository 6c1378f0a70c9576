"""The pages of decisions: what was decided, why, and what else was weighed."""

from __future__ import annotations

from costopt.daemon.pages.asked import PageRequest, take_first
from costopt.daemon.pages.words import clock, decision_text, slack_cell
from costopt.daemon.reader import TenantReader
from costopt.daemon.views import DecisionRow
from costopt.domain.events import DecisionMade
from costopt.formatting import UNKNOWN_TEXT, usd_text
from costopt.render.events import describe_event
from costopt.render.page import (
    FactList,
    Page,
    TableBlock,
    decision_cell,
    job_cell,
    make_columns,
    table_block,
)
from costopt.render.table import Cell

DECISIONS_SHOWN = 300
FOLLOWED_SHOWN = 50
SCANNED_EVENTS = 500
COLUMNS = make_columns("decision", "time", "choice", "rule", "#slack", "reason")


def decisions_page(reader: TenantReader, asked: PageRequest) -> Page:
    """The last decision of each job; every one of a job is on the job's page."""
    made = [row.decision for row in reader.decisions(limit=DECISIONS_SHOWN)]
    wanted = (d for d in made if asked.wants(d.job, decision_text(d), d.reason, d.rule or ""))
    rows, left_out = take_first(wanted, DECISIONS_SHOWN)
    grid = table_block(
        "decisions",
        "The last of each job",
        (*make_columns("job"), *COLUMNS),
        tuple((job_cell(d.job), *decision_row(d)) for d in rows),
        lead="The newest first. A decision leads to what else was weighed.",
        empty="No decision is like that." if asked.words else "No decision was made yet.",
        left_out=left_out,
    )
    return Page(
        title="Decisions",
        over="What was decided, and why",
        lead="A decision is recorded where it differs from the one before.",
        blocks=(grid,),
        filter_label="Decisions of which job, rule, pool or reason?",
    )


def decision_row(decision: DecisionMade) -> tuple[Cell, ...]:
    """As ``COLUMNS`` say."""
    return (
        decision_cell(decision.decision_id),
        Cell(clock(decision.at)),
        Cell(decision_text(decision)),
        Cell(decision.rule or "—", tone="plain" if decision.rule is None else "note"),
        slack_cell(decision.slack_s),
        Cell(decision.reason),
    )


def last_decisions(rows: tuple[tuple[Cell, ...], ...], lead: str) -> TableBlock:
    """Decisions of one job."""
    return table_block("decisions", "Decisions", COLUMNS, rows, lead, "No decision was made yet.")


def decision_page(reader: TenantReader, decision_id: str) -> Page:
    """One decision. Raises SpecError where there is none of that id."""
    row = reader.decision(decision_id)
    made = row.decision
    slack = slack_cell(made.slack_s)
    facts = (
        ("Choice", decision_text(made)),
        ("Reason", made.reason),
        ("Rule that bound it", made.rule or "none"),
        ("Slack", slack.text),
        ("Time", clock(made.at)),
    )
    return Page(
        title=decision_id,
        over=f"A decision for job {made.job}",
        lead=made.reason,
        blocks=(
            FactList("decision", "The decision", facts),
            _alternatives(made),
            _followed(reader, row),
        ),
        over_href=job_cell(made.job).href,
    )


def _alternatives(made: DecisionMade) -> TableBlock:
    known = [value for _, value, _ in made.alternatives if value is not None]
    return table_block(
        "alternatives",
        "What was weighed",
        make_columns(
            "alternative", "#expected to the end", "#more than the best", "chosen", "estimates"
        ),
        tuple(
            (
                Cell(what),
                Cell(usd_text(value)),
                Cell(UNKNOWN_TEXT if value is None else usd_text(value - min(known))),
                Cell("chosen", tone="good") if what == decision_text(made) else Cell("—"),
                Cell(note),
            )
            for what, value, note in made.alternatives
        ),
        lead="Each with the dollars that it was expected to cost from here to the end of the job.",
        empty="Nothing was recorded of what else was weighed.",
    )


def _followed(reader: TenantReader, row: DecisionRow) -> TableBlock:
    """The events up to the next decision: what was launched, refused or stopped by a guard."""
    events = []
    for recorded in reader.events(row.decision.job, row.seq, SCANNED_EVENTS):
        if isinstance(recorded.event, DecisionMade):
            break
        events.append(describe_event(recorded.event))
    rows, left_out = take_first((each for each in events if not each.routine), FOLLOWED_SHOWN)
    return table_block(
        "followed",
        "What followed",
        make_columns("time", "event", "detail"),
        tuple((Cell(clock(r.at)), Cell(r.what, tone=r.tone), Cell(r.detail)) for r in rows),
        lead="Until the next decision.",
        empty="Nothing yet.",
        left_out=left_out,
    )
