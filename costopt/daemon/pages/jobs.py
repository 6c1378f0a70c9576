"""The page of all jobs, and the page of one job: its state, its costs, and its decisions."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from operator import attrgetter

from costopt.daemon.lists import is_over
from costopt.daemon.pages.charts import jobs_plot
from costopt.daemon.pages.decisions import decision_row, last_decisions
from costopt.daemon.pages.guards import limits_grid
from costopt.daemon.pages.layout import (
    ChartCache,
    JobCharts,
    PageRequest,
    clock,
    decision_text,
    pool_text,
    slack_cell,
    state_cell,
    take_first,
    wanted_jobs,
)
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import JobForecast, JobStatus
from costopt.domain.control import DesiredState
from costopt.formatting import (
    UNKNOWN_TEXT,
    pluralize,
    seconds_text,
    usd_micros_text,
    usd_text,
    wh_text,
    whole_percent_text,
)
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.run_view import RunView
from costopt.ledger.summary import JobState, JobSummary
from costopt.render.page import (
    Block,
    FactList,
    Metric,
    Page,
    TableBlock,
    Tiles,
    job_cell,
    make_columns,
    table_block,
)
from costopt.render.table import Cell
from costopt.views.event import describe_event
from costopt.views.job import deadline_sentence, run_tiles

JOBS_SHOWN = 300
COLUMNS = make_columns(
    "job", "state", "tenant", "#priority", "#done", "#slack", "deadline", "#nodes", "#spent",
    "#energy",
)  # fmt: skip


def jobs_page(reader: TenantReader, asked: PageRequest, charts: ChartCache) -> Page:
    """Return the page of jobs: over time, then open ones, those with the least slack first, then
    those that are over."""
    every = wanted_jobs(reader, asked)
    running = sorted((s for s in every if not is_over(s)), key=_urgency)
    ended = [s for s in reversed(every) if is_over(s)]
    return Page(
        title="Jobs",
        over="Submitted jobs",
        lead=f"{pluralize(len(running), 'open job')}, {len(ended)} ended.",
        blocks=(
            *jobs_plot(charts, reader, every, asked.words),
            _held(running),
            _grid("open", "Open", running),
            _grid("ended", "Ended", ended),
        ),
        filter_label="Job or tenant",
    )


def _urgency(status: JobStatus) -> float:
    """Return the sort key; jobs with unknown slack come last."""
    return float("inf") if status.slack_s is None else status.slack_s


def _grid(grid_id: str, title: str, statuses: list[JobStatus]) -> TableBlock:
    rows, left_out = take_first(statuses, JOBS_SHOWN)
    return table_block(
        grid_id, title, COLUMNS, tuple(_row(status) for status in rows), empty="None.",
        left_out=left_out,
    )  # fmt: skip


def _deadline(summary: JobSummary) -> str:
    if summary.start_at is None:
        return "not begun"
    return clock(summary.deadline_at) or "none"


def _row(status: JobStatus) -> tuple[Cell, ...]:
    summary, submission = status.summary, status.submission
    return (
        job_cell(submission.name),
        state_cell(status),
        Cell(submission.tenant),
        Cell(str(submission.priority)),
        Cell(whole_percent_text(summary.done_share)),
        _slack(status),
        Cell(_deadline(summary)),
        Cell(str(summary.nodes_alive)),
        Cell(usd_micros_text(summary.usd_micros)),
        Cell(wh_text(summary.wh)),
    )


def _slack(status: JobStatus) -> Cell:
    if not is_over(status):
        return slack_cell(status.slack_s)
    on_time = status.summary.on_time
    if on_time is None:
        return Cell("—")
    return Cell("on time", tone="good") if on_time else Cell("late", tone="bad")


def _held(running: list[JobStatus]) -> TableBlock:
    rows, left_out = take_first((s for s in running if s.blocked_by), JOBS_SHOWN)
    return table_block(
        "held",
        "Blocked",
        make_columns("job", "reason"),
        tuple((job_cell(s.submission.name), Cell(s.blocked_by)) for s in rows),
        lead="Jobs that get no nodes now.",
        empty="No job is blocked.",
        left_out=left_out,
    )


NODES_SHOWN = 100
EVENTS_SHOWN = 50
DECISIONS_SHOWN = 10


def job_page(reader: TenantReader, name: str, story: JobCharts) -> Page:
    """Return the page of a job. Raise SpecError if there is no such job."""
    status = reader.job(name)
    run = story.run
    blocks: list[Block] = [Tiles((*_standing(status), *_came_to(run)))]
    blocks += [_forecast(status), *story.plots]
    if run is not None:
        blocks += [_nodes(run), _events(run)]
    blocks += [_decisions(reader, name), _facts(status, story), limits_grid(status.submission)]
    late = status.summary.on_time is False or status.summary.state is JobState.FAILED
    return Page(
        title=name,
        over=f"Job of tenant {status.submission.tenant}",
        lead=_lead(status),
        blocks=tuple(blocks),
        tone="bad" if late else "good" if status.summary.on_time else "plain",
    )


def _lead(status: JobStatus) -> str:
    desired, summary = status.submission.desired_state, status.summary
    said = deadline_sentence(summary)
    lead = f"{summary.state.value.capitalize()}: {said}."
    if said.startswith(summary.state.value):
        lead = f"{said[0].upper()}{said[1:]}."
    if desired is not DesiredState.RUN and summary.state is not JobState.FINISHED:
        lead += f" Requested state: {desired.value}."
    if status.blocked_by and not is_over(status):
        lead += f" Blocked: {status.blocked_by}"
    return lead


def _came_to(run: RunView | None) -> tuple[Metric, ...]:
    return () if run is None else run_tiles(run)


def _standing(status: JobStatus) -> tuple[Metric, ...]:
    slack_s = None if is_over(status) else status.slack_s
    nodes = Metric("Nodes", str(len(status.nodes)), "measured", _speed(status.summary))
    if is_over(status):
        return (nodes,)
    note = "until only uninterruptible capacity can meet the deadline"
    return (nodes, Metric("Slack", slack_cell(slack_s).text, "modelled", note))


def _speed(summary: JobSummary) -> str:
    if not summary.nodes_alive:
        return "not training"
    if summary.units_per_s is None:
        return "no speed reported yet"
    return f"{summary.units_per_s:,.3g} {summary.unit or 'units'} per second"


def _forecast(status: JobStatus) -> FactList:
    """Return the job's forecast; before one was made, what the last decision predicts."""
    summary, decision = status.summary, status.decision
    if is_over(status):
        return FactList("forecast", "Forecast", (("Finish", "The job has ended."),))
    if status.forecast is not None:
        return _made_forecast(status, status.forecast)
    to_come = None
    if decision is not None and decision.at >= summary.now:  # later, dollars were spent since
        values = {what: value for what, value, _ in decision.alternatives}
        to_come = values.get(decision_text(decision))
    total = None if to_come is None else summary.usd_micros + to_come * 1e6
    facts = (
        ("At the present pace", _finish(status.finish_at_pace, "if nothing stops it")),
        ("On the safest capacity", _finish(status.safest_finish_at, "if it went there at once")),
        ("Expected dollars to completion", usd_text(to_come)),
        ("Expected dollars in total", usd_micros_text(total)),
    )
    made_at = None if decision is None else clock(decision.at)
    as_of = f"By the decision at {made_at}." if made_at else "No decision was made yet."
    return FactList("forecast", "Forecast", facts, as_of)


def _made_forecast(status: JobStatus, made: JobForecast) -> FactList:
    age_s = max(0.0, (status.summary.now - made.made_at).total_seconds())
    wh = None if made.kwh_to_come is None else 1000 * made.kwh_to_come
    finish = f"{clock(made.finish_p50_at)} (P95 {clock(made.finish_p95_at)})"
    dollars = f"{usd_text(made.usd)} (P95 {usd_text(made.usd_p95)})"
    to_come_usd = max(0.0, made.usd - status.summary.usd)
    facts = (
        ("Expected finish", finish),
        ("In time with a probability of", whole_percent_text(made.on_time)),
        ("At the present pace", _finish(status.finish_at_pace, "if nothing stops it")),
        ("On the safest capacity", _finish(status.safest_finish_at, "if it went there at once")),
        ("Expected dollars to completion", usd_text(to_come_usd)),
        ("Expected dollars in total", dollars),
        ("Expected energy to completion", wh_text(wh)),
    )
    as_of = f"Made {seconds_text(age_s)} ago, at {clock(made.made_at)}: {made.source}."
    return FactList("forecast", "Forecast", facts, as_of)


def _finish(at: datetime | None, condition: str) -> str:
    return UNKNOWN_TEXT if at is None else f"done by {clock(at)}, {condition}"


def _nodes(run: RunView) -> TableBlock:
    rows, left_out = take_first(reversed(run.intervals), NODES_SHOWN)
    return table_block(
        "nodes",
        "Nodes",
        make_columns(
            "node", "pool", "launched", "ended", "end reason", "#duration", "#cost", "#energy"
        ),
        tuple(_node(row, run.now) for row in rows),
        lead="Newest first.",
        empty="It never had a node.",
        left_out=left_out,
    )


def _node(row: NodeInterval, now: datetime) -> tuple[Cell, ...]:
    lost = row.cause is not None and row.cause.is_unplanned
    lasted_s = ((row.ended_at or now) - row.launched_at).total_seconds()
    return (
        Cell(row.node_id),
        Cell(pool_text(str(row.pool))),
        Cell(clock(row.launched_at)),
        Cell(clock(row.ended_at) or "—"),
        Cell(row.outcome, tone="bad" if lost else "plain"),
        Cell(seconds_text(lasted_s)),
        Cell(usd_micros_text(row.usd_micros)),
        Cell(wh_text(row.wh)),
    )


def _events(run: RunView) -> TableBlock:
    described = sorted(map(describe_event, run.events), key=attrgetter("at"))
    notable = [row for row in described if not row.routine]
    rows, left_out = take_first(reversed(notable), EVENTS_SHOWN)
    return table_block(
        "events",
        "Events",
        make_columns("time", "event", "detail"),
        tuple((Cell(clock(r.at)), Cell(r.what, tone=r.tone), Cell(r.detail)) for r in rows),
        lead="Notable events, newest first. The API and costopt events return every one.",
        left_out=left_out,
    )


def _decisions(reader: TenantReader, name: str) -> TableBlock:
    rows = islice(reader.decisions(name), DECISIONS_SHOWN)
    return last_decisions(tuple(decision_row(row.decision) for row in rows), "Newest first.")


def _baseline(summary: JobSummary) -> str:
    return (
        f"{usd_micros_text(summary.baseline_usd_micros)} for the whole job {summary.baseline_basis}"
    )


def _facts(status: JobStatus, story: JobCharts) -> FactList:
    submission, summary = status.submission, status.summary
    facts = [
        ("Submitted", f"at {clock(submission.submitted_at)} by {submission.submitted_by}"),
        ("Priority", str(submission.priority)),
        (
            "Policy, strategy",
            f"{summary.policy or UNKNOWN_TEXT}, {summary.strategy or UNKNOWN_TEXT}",
        ),
        ("Deadline", _deadline(summary)),
        ("On-demand baseline", _baseline(summary)),
        ("Folder", submission.workdir),
    ]
    if story.without_plots:
        facts.append(("Charts", story.without_plots))
    return FactList("facts", "Details", tuple(facts))
