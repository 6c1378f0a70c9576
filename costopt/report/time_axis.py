"""The horizontal axis of a run: time since the job's start, the same in every plot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from costopt.report.drawing import Canvas, css_color
from costopt.report.run import RunView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS = (1, 2, 3, 5, 6, 10, 12, 15, 24, 30, 48, 60, 120, 240, 480, 960)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times in units of ``unit_s`` seconds since ``begun_at``, up to ``end``.

    ``deadline`` is None where it lies so far ahead that it would squeeze the run.
    """

    begun_at: datetime
    unit: str
    unit_s: float
    end: float
    deadline: float | None

    @classmethod
    def of(cls, run: RunView) -> TimeAxis:
        """The axis that shows the whole run, and its deadline where that is near."""
        lasted_s = max(1.0, (run.ended_at - run.begun_at).total_seconds())
        due = run.summary.deadline_at
        due_s = None if due is None else (due - run.begun_at).total_seconds()
        shown = due_s is not None and 0 < due_s <= 2.5 * lasted_s
        end_s = max(lasted_s, due_s if shown and due_s is not None else 0)
        unit, unit_s = _unit(end_s)
        return cls(
            run.begun_at,
            unit,
            unit_s,
            end_s / unit_s,
            due_s / unit_s if shown and due_s is not None else None,
        )

    def place(self, at: datetime) -> float:
        """Where an instant stands on the axis."""
        return (at - self.begun_at).total_seconds() / self.unit_s

    def draw(self, axes: Axes, canvas: Canvas) -> None:
        """Ticks, label and the deadline."""
        axes.set_xlim(0, self.end * 1.01)
        step = _step(self.end, 6 if canvas.narrow else 12)
        axes.set_xticks([step * i for i in range(math.floor(self.end * 1.01 / step) + 1)])
        axes.set_xlabel(f"{self.unit} since the start", fontsize=12, color=css_color("muted"))
        if self.deadline is None:
            return
        axes.axvline(self.deadline, color=css_color("bad"), linewidth=1.5, zorder=1)
        axes.annotate(
            "deadline",
            (self.deadline, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 6),
            textcoords="offset points",
            ha="right" if self.deadline > self.end * 0.9 else "center",
            color=css_color("bad"),
            fontsize=12,
        )


def _unit(seconds: float) -> tuple[str, float]:
    if seconds < 180:
        return "seconds", 1.0
    if seconds < 3 * 3600:
        return "minutes", 60.0
    return ("hours", 3600.0) if seconds < 5 * 86400 else ("days", 86400.0)


def _step(end: float, most: int) -> float:
    return next((float(step) for step in _STEPS if end / step <= most), end / most)
