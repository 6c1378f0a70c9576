"""The page of all jobs, and the page of one job: its state, its costs, and its decisions."""

from __future__ import annotations

from itertools import islice

from costopt.daemon.lists import is_over
from costopt.daemon.pages.charts import jobs_plot
from costopt.daemon.pages.decisions import DECISION_KEYS
from costopt.daemon.pages.guards import held_block, limits_block
from costopt.daemon.pages.layout import ChartCache, JobCharts, PageRequest, wanted_jobs
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import JobStatus
from costopt.domain.control import DesiredState
from costopt.formatting import UNKNOWN_TEXT, pluralize
from costopt.ledger.summary import JobState, JobSummary
from costopt.render.page import Block, FactList, Metric, Page, TableBlock, Tiles
from costopt.render.table import figures, pick
from costopt.views.decision import DECISION_COLUMNS
from costopt.views.event import EVENT_COLUMNS, describe_events
from costopt.views.headline import deadline_sentence
from costopt.views.job import (
    DETAILS,
    FORECAST,
    JOB_COLUMNS,
    forecast_source,
    job_tiles,
    slack_text,
)
from costopt.views.node import columns_until

NODES_SHOWN = 100
EVENTS_SHOWN = 50
DECISIONS_SHOWN = 10
OPEN_KEYS = (
    "job state desired_state next_at tenant priority done_share slack_s deadline_at nodes usd kwh"
)


def jobs_page(reader: TenantReader, asked: PageRequest, charts: ChartCache) -> Page:
    """Return the page of jobs: over time, then open ones, those with the least slack first, then
    those that are over."""
    every = wanted_jobs(reader, asked)
    running = sorted(
        (s for s in every if not is_over(s)),
        key=lambda s: float("inf") if s.slack_s is None else s.slack_s,
    )
    ended = [s for s in reversed(every) if is_over(s)]
    ended_columns = pick(JOB_COLUMNS, OPEN_KEYS.replace("slack_s", "on_time"))
    return Page(
        title="Jobs",
        over="Submitted jobs",
        lead=f"{pluralize(len(running), 'open job')}, {len(ended)} ended.",
        blocks=(
            *jobs_plot(charts, reader, every, asked.words),
            held_block(running),
            TableBlock("open", "Open", pick(JOB_COLUMNS, OPEN_KEYS), running),
            TableBlock("ended", "Ended", ended_columns, ended),
        ),
        filter_label="Job or tenant",
    )


def job_page(reader: TenantReader, name: str, story: JobCharts) -> Page:
    """Return the page of a job. Raise SpecError if there is no such job."""
    status, run = reader.job(name), story.run
    summary, over = status.summary, is_over(status)
    nodes = Metric("Nodes", str(len(status.nodes)), "measured", _speed(summary))
    slack = Metric(
        "Slack", UNKNOWN_TEXT if status.slack_s is None else slack_text(status.slack_s), "modelled",
        "until only uninterruptible capacity can meet the deadline",
    )  # fmt: skip
    tiles = (nodes, *(() if over else (slack,)), *(() if run is None else job_tiles(run)))
    forecast = FactList("forecast", "Forecast", (("Finish", "The job has ended."),))
    if not over:
        expected = figures(FORECAST, status)
        forecast = FactList("forecast", "Forecast", expected, forecast_source(status))
    blocks: list[Block] = [Tiles(tiles), forecast, *story.plots]
    if run is not None:
        notable = [event for event in describe_events(run.events) if not event.routine]
        lead = "Notable events, newest first. The API and costopt events return every one."
        blocks += [
            TableBlock(
                "nodes", "Nodes", columns_until(run.now), run.intervals[::-1], "Newest first.",
                "It never had a node.", NODES_SHOWN,
            ),
            TableBlock(
                "events", "Events", pick(EVENT_COLUMNS, "at event detail"), notable[::-1], lead,
                most=EVENTS_SHOWN,
            ),
        ]  # fmt: skip
    decisions = [row.decision for row in islice(reader.decisions(name), DECISIONS_SHOWN)]
    details = figures(
        pick(DETAILS, "submitted priority policy strategy deadline_at baseline workdir"), status
    )
    if story.without_plots:
        details = (*details, ("Charts", story.without_plots))
    late = summary.on_time is False or summary.state is JobState.FAILED
    return Page(
        title=name,
        over=f"Job of tenant {status.submission.tenant}",
        lead=_lead(status),
        blocks=(
            *blocks,
            TableBlock(
                "decisions", "Decisions", pick(DECISION_COLUMNS, DECISION_KEYS), decisions,
                "Newest first.", "No decision was made yet.",
            ),
            FactList("facts", "Details", details),
            limits_block(status.submission),
        ),
        tone="bad" if late else "good" if summary.on_time else "plain",
    )  # fmt: skip


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


def _speed(summary: JobSummary) -> str:
    if not summary.nodes_alive:
        return "not training"
    if summary.units_per_s is None:
        return "no speed reported yet"
    return f"{summary.units_per_s:,.3g} {summary.unit or 'units'} per second"
