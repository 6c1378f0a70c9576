"""The page of all jobs."""

from __future__ import annotations

from costopt.daemon.pages.asked import PageRequest, take_first
from costopt.daemon.pages.words import clock, is_over, slack_cell, state_cell
from costopt.daemon.reader import TenantReader
from costopt.daemon.views import JobStatus
from costopt.formatting import usd_micros_text, wh_text, whole_percent_text
from costopt.render.page import Page, TableBlock, job_cell, make_columns, table_block
from costopt.render.run_tables import pluralize
from costopt.render.table import Cell

JOBS_SHOWN = 300
COLUMNS = make_columns(
    "job", "state", "tenant", "#priority", "#done", "#slack", "deadline", "#nodes", "#spent",
    "#energy",
)  # fmt: skip


def jobs_page(reader: TenantReader, asked: PageRequest) -> Page:
    """Open jobs, those with the least slack first, then those that are over."""
    every = [s for s in reader.jobs() if asked.wants(s.submission.name, s.submission.tenant)]
    running = sorted((s for s in every if not is_over(s)), key=_urgency)
    ended = [s for s in reversed(every) if is_over(s)]
    return Page(
        title="Jobs",
        over="What was handed in",
        lead=f"{pluralize(len(running), 'open job')}, {len(ended)} over.",
        blocks=(_held(running), _grid("open", "Open", running), _grid("over", "Over", ended)),
        filter_label="Which job or tenant?",
    )


def _urgency(status: JobStatus) -> float:
    """Those of which nothing is known come last."""
    return float("inf") if status.slack_s is None else status.slack_s


def _grid(grid_id: str, title: str, statuses: list[JobStatus]) -> TableBlock:
    rows, left_out = take_first(statuses, JOBS_SHOWN)
    return table_block(
        grid_id, title, COLUMNS, tuple(_row(status) for status in rows), empty="None.",
        left_out=left_out,
    )  # fmt: skip


def _row(status: JobStatus) -> tuple[Cell, ...]:
    summary, submission = status.summary, status.submission
    return (
        job_cell(submission.name),
        state_cell(status),
        Cell(submission.tenant),
        Cell(str(submission.priority)),
        Cell(whole_percent_text(summary.done_share)),
        _slack(status),
        Cell(clock(summary.deadline_at) or "not begun"),
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
        "Held back",
        make_columns("job", "why"),
        tuple((job_cell(s.submission.name), Cell(s.blocked_by)) for s in rows),
        lead="Jobs that get no nodes now, and what holds them.",
        empty="Nothing holds a job back.",
        left_out=left_out,
    )
