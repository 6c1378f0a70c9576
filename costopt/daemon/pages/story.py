"""A job's events with the drawings of them, made once per tick however many look."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from threading import Lock

from costopt.daemon.service import DaemonService
from costopt.domain.distribution import install_hint
from costopt.render.page import Plot
from costopt.render.run_charts import energy_plot, progress_plot, spend_plot, timeline
from costopt.render.run_tables import RunView

KEPT = 16
MAX_EVENTS = 200_000
"""Beyond it a job's page shows figures and no curves, which would take seconds to fold."""
Key = tuple[str, datetime]


@dataclass(frozen=True, slots=True)
class JobCharts:
    """``run`` is None where there are no events, or too many; ``plots`` are empty then.

    They are empty too where nothing that draws is installed.
    """

    run: RunView | None
    plots: tuple[Plot, ...] = ()
    without_plots: str = ""


class ChartCache:
    """Those that were looked at last. Safe to share between threads; one draws at a time."""

    def __init__(self, service: DaemonService) -> None:
        self._service = service
        self._lock = Lock()
        self._kept: OrderedDict[Key, JobCharts] = OrderedDict()

    def of(self, job: str) -> JobCharts:
        """The job as of the last tick. Raises LedgerError."""
        key = (job, self._service.fleet().now)
        with self._lock:
            story = self._kept.get(key)
            if story is None:
                story = self._kept[key] = _told(self._service, *key)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return story


def _told(service: DaemonService, job: str, now: datetime) -> JobCharts:
    events = tuple(each.event for each in service.events(job, limit=MAX_EVENTS))
    if not events:
        return JobCharts(None, (), "Nothing has happened to this job yet.")
    if len(events) == MAX_EVENTS:
        return JobCharts(None, (), f"Its curves are not drawn: it has over {MAX_EVENTS:,} events.")
    run = RunView.of(events, max(now, *(event.at for event in events)))
    if find_spec("matplotlib") is None:
        return JobCharts(run, (), f"Curves are drawn with an extra: {install_hint('report')}.")
    return JobCharts(run, _plots(run))


def _plots(run: RunView) -> tuple[Plot, ...]:
    plots = [
        Plot(
            "progress", "Progress",
            "Work done, and the part of it that an interruption can no longer take.",
            progress_plot(run),
        ),
        Plot(
            "spend", "Dollars",
            "What its nodes cost so far, beside uninterrupted on-demand nodes for the same work.",
            spend_plot(run),
        ),
        Plot(
            "energy", "Energy in kWh",
            "At the data centre's meter, cooling included, beside on-demand for the same work.",
            energy_plot(run),
        ),
    ]  # fmt: skip
    if run.intervals:
        bars = Plot(
            "timeline", "Nodes by pool",
            "Every node from launch to end, as the provider confirmed them.", timeline(run),
        )  # fmt: skip
        plots.insert(0, bars)
    return tuple(plots)
