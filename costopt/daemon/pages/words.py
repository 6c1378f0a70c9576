"""How the pages say what several of them say."""

from __future__ import annotations

from datetime import datetime

from costopt.daemon.views import JobStatus
from costopt.domain.events import DecisionMade
from costopt.domain.market import Pool
from costopt.domain.submission import DesiredState
from costopt.formatting import UNKNOWN_TEXT, second_text, seconds_text
from costopt.ledger.summary import JobState
from costopt.render.run_charts import pool_label
from costopt.render.table import Cell

ENDED = (JobState.FINISHED, JobState.FAILED)


def pool_text(pool: str) -> str:
    """A pool in words; as it was recorded where it is none."""
    try:
        return pool_label(Pool.parse(pool))
    except ValueError:
        return pool


def clock(at: datetime | None) -> str:
    """An instant to the second, "" where there is none."""
    return "" if at is None else second_text(at)


def age_text(at: datetime, now: datetime) -> str:
    """How long ago something was."""
    return f"{seconds_text(max(0.0, (now - at).total_seconds()))} ago"


def decision_text(decision: DecisionMade) -> str:
    """What a decision wants."""
    return " + ".join(f"{n} × {pool}" for pool, n in decision.targets) or "wait"


def slack_cell(slack_s: float | None) -> Cell:
    """Slack; a lack of it stands out."""
    if slack_s is None:
        return Cell(UNKNOWN_TEXT)
    if slack_s < 0:
        return Cell(f"short of {seconds_text(-slack_s)}", tone="bad")
    return Cell(seconds_text(slack_s))


def state_cell(status: JobStatus) -> Cell:
    """What a job does, or what its owner wants of it where that is not to run."""
    state, desired = status.summary.state, status.submission.desired_state
    if state in ENDED:
        return Cell(state.value, tone="good" if state is JobState.FINISHED else "bad")
    if desired is not DesiredState.RUN:
        return Cell(desired.value, tone="note")
    return Cell(state.value, tone="good" if state is JobState.TRAINING else "plain")


def is_over(status: JobStatus) -> bool:
    """Whether the job needs no more nodes, ever."""
    cancelled = status.submission.desired_state is DesiredState.CANCELLED
    return status.summary.state in ENDED or cancelled
