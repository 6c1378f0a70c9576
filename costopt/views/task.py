"""The tasks of an array that ended, with their parameters and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from costopt.domain.events import TaskEnded
from costopt.formatting import minute_text, number_text, seconds_text
from costopt.render.table import Column, Table


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} {number_text(value) if isinstance(value, float) else value}"
        for name, value in values.items()
    )


TASK_COLUMNS = (
    Column("task", "Task", right=True),
    Column("state", "State", value="outcome"),
    Column("starts", "Starts", right=True),
    Column("parameters", "Parameters", _pairs, fold_at=40, value=lambda row: dict(row.parameters)),
    Column("figures", "Result", _pairs, fold_at=40, value=lambda row: dict(row.figures)),
    Column("took_s", "Took", seconds_text, right=True),
    Column("node", "Node", rank=1, value="node_id"),
    Column("ended_at", "Ended (UTC)", minute_text, rank=2, value="at"),
    Column("message", "Message", fold_at=60),
)


def tasks_table(job: str, ended: Iterable[TaskEnded], total: float | None) -> Table:
    """Return a row for each task that ended, by number; the notes count the others."""
    rows = sorted(ended, key=lambda task: task.task)
    left = 0 if total is None else round(total) - len(rows)
    notes = (f"{left} of {total:.0f} tasks have not ended.",) if left > 0 else ()
    return Table("costopt.tasks/1", f"Tasks of {job}", TASK_COLUMNS, rows, notes=notes)
