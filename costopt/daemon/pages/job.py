"""The page of one job: how it stands, what it came to, and why."""

from __future__ import annotations

from datetime import datetime, timedelta

from costopt.daemon.pages.asked import first
from costopt.daemon.pages.block import (
    Block,
    Cell,
    Facts,
    Grid,
    Page,
    Tiles,
    columns,
)
from costopt.daemon.pages.decisions import decision_row, last_decisions
from costopt.daemon.pages.limits import limits_grid
from costopt.daemon.pages.story import Story
from costopt.daemon.pages.words import choice, clock, over, pool_words
from costopt.daemon.reader import Reader
from costopt.daemon.views import JobStatus
from costopt.domain.submission import JobIntent
from costopt.ledger.node import NodeInterval
from costopt.ledger.summary import JobState, JobSummary
from costopt.report.event_row import event_row
from costopt.report.figure import UNKNOWN, duration, energy, usd
from costopt.report.run import Run
from costopt.report.summary import verdict
from costopt.report.tile import Tile, run_tiles

NODES_SHOWN = 100
EVENTS_SHOWN = 50
DECISIONS_SHOWN = 10


def job_page(reader: Reader, name: str, story: Story) -> Page:
    """Raises SpecError where there is no such job."""
    status = reader.job(name)
    run = story.run
    blocks: list[Block] = [Tiles((*_standing(status), *_came_to(run)))]
    blocks += [_forecast(status), *story.plots]
    if run is not None:
        blocks += [_nodes(run), _events(run)]
    blocks += [
        _decisions(reader, name),
        _facts(status, story),
        limits_grid(status.submission),
    ]
    late = status.summary.on_time is False or status.summary.state is JobState.FAILED
    return Page(
        title=name,
        over=f"Job of tenant {status.submission.tenant}",
        lead=_lead(status),
        blocks=tuple(blocks),
        tone="bad" if late else "good" if status.summary.on_time else "plain",
    )


def _lead(status: JobStatus) -> str:
    intent, summary = status.submission.intent, status.summary
    said = verdict(summary)
    lead = f"{summary.state.value.capitalize()}: {said}."
    if said.startswith(summary.state.value):
        lead = f"{said[0].upper()}{said[1:]}."
    if intent is not JobIntent.RUN and summary.state is not JobState.FINISHED:
        lead += f" Its owner wants it {intent.value}."
    if status.held_because and not over(status):
        lead += f" Held back: {status.held_because}"
    return lead


def _came_to(run: Run | None) -> tuple[Tile, ...]:
    return () if run is None else run_tiles(run, "measured")


def _standing(status: JobStatus) -> tuple[Tile, ...]:
    slack_s = None if over(status) else status.slack_s
    nodes = Tile("Nodes", str(len(status.nodes)), "measured", _speed(status.summary))
    if over(status):
        return (nodes,)
    short = slack_s is not None and slack_s < 0
    said = f"short of {duration(slack_s)}" if short else duration(slack_s)
    note = "until only capacity that nobody takes away keeps the deadline"
    return (nodes, Tile("Slack", said, "modelled", note))


def _speed(summary: JobSummary) -> str:
    if not summary.nodes_alive:
        return "no gang trains now"
    if summary.units_per_s is None:
        return "no speed reported yet"
    return f"{summary.units_per_s:,.3g} {summary.unit or 'units'} per second"


def _forecast(status: JobStatus) -> Facts:
    """What the last decision and the present pace promise."""
    summary, decision = status.summary, status.decision
    if over(status):
        return Facts("forecast", "Forecast", (("Finish", "The job is over."),))
    to_come = None
    if decision is not None:
        values = {what: value for what, value, _ in decision.alternatives}
        to_come = values.get(choice(decision))
    total = None if to_come is None else summary.usd_micros + to_come * 1e6
    facts = (
        ("At the present pace", _finish_at_pace(summary)),
        ("On the safest capacity", _safest_finish(status)),
        ("Dollars to come", UNKNOWN if to_come is None else usd(to_come * 1e6)),
        ("Dollars in all", usd(total)),
    )
    made_at = None if decision is None else clock(decision.at)
    as_of = f"By the decision at {made_at}." if made_at else "No decision was made yet."
    return Facts("forecast", "Forecast", facts, as_of)


def _finish_at_pace(summary: JobSummary) -> str:
    if not summary.units_per_s or not summary.work_units or not summary.nodes_alive:
        return UNKNOWN
    left_s = max(0.0, summary.work_units - summary.done_units) / summary.units_per_s
    return f"done at {clock(summary.now + timedelta(seconds=left_s))}, if nothing stops it"


def _safest_finish(status: JobStatus) -> str:
    """The slack is what then is left until the deadline."""
    due = status.summary.deadline_at
    if due is None or status.slack_s is None:
        return UNKNOWN
    latest = due - timedelta(seconds=status.slack_s)
    return f"done by {clock(latest)}, if it went there at once"


def _nodes(run: Run) -> Grid:
    rows, left_out = first(reversed(run.intervals), NODES_SHOWN)
    return Grid(
        "nodes",
        "Nodes",
        columns("node", "pool", "launched", "ended", "why", "#lasted", "#cost", "#energy"),
        tuple(_node(row, run.now) for row in rows),
        lead="The newest first.",
        empty="It never had a node.",
        left_out=left_out,
    )


def _node(row: NodeInterval, now: datetime) -> tuple[Cell, ...]:
    lost = row.cause is not None and row.cause.unwanted
    lasted_s = ((row.ended_at or now) - row.launched_at).total_seconds()
    return (
        Cell(row.node_id),
        Cell(pool_words(str(row.pool))),
        Cell(clock(row.launched_at)),
        Cell(clock(row.ended_at) or "—"),
        Cell("running" if row.cause is None else row.cause.value, tone="bad" if lost else "plain"),
        Cell(duration(lasted_s)),
        Cell(usd(row.usd_micros)),
        Cell(energy(row.wh)),
    )


def _events(run: Run) -> Grid:
    notable = [row for row in map(event_row, run.events) if not row.routine]
    rows, left_out = first(reversed(notable), EVENTS_SHOWN)
    return Grid(
        "events",
        "Events",
        columns("time", "event", "detail"),
        tuple((Cell(clock(r.at)), Cell(r.what, tone=r.tone), Cell(r.detail)) for r in rows),
        lead="What changed the run, the newest first. The API and costopt events hold every one.",
        left_out=left_out,
    )


def _decisions(reader: Reader, name: str) -> Grid:
    rows = reader.decisions(name, DECISIONS_SHOWN)
    return last_decisions(tuple(decision_row(row.decision) for row in rows), "The last ones.")


def _baseline(summary: JobSummary) -> str:
    return f"{usd(summary.baseline_usd_micros)} for the whole job {summary.baseline_basis}"


def _facts(status: JobStatus, story: Story) -> Facts:
    submission, summary = status.submission, status.summary
    facts = [
        ("Handed in", f"at {clock(submission.submitted_at)} by {submission.submitted_by}"),
        ("Priority", str(submission.priority)),
        ("Policy, strategy", f"{summary.policy or UNKNOWN}, {summary.strategy or UNKNOWN}"),
        ("Deadline", clock(summary.deadline_at) or UNKNOWN),
        ("On-demand baseline", _baseline(summary)),
        ("Folder", submission.workdir),
    ]
    if story.without_plots:
        facts.append(("Curves", story.without_plots))
    return Facts("facts", "The job", tuple(facts))
