"""Reading of ledgers: what jobs did, cost and consumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from costopt.api.inputs import (
    StrPath,
    bad_argument,
    check_choice,
    check_count,
    check_instant,
    check_path,
)
from costopt.controller.state_dir import check_known, job_now, open_state_ledger
from costopt.database.database_url import is_url
from costopt.domain.events import DecisionMade
from costopt.domain.ports import EventReader, RecordedEvent
from costopt.ledger.base import DurableLedger, open_ledger
from costopt.ledger.fold_cache import FoldState, load_fold, require_fold, summaries
from costopt.ledger.job_account import JobAccount
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.summary import JobSummary
from costopt.render.table import Table
from costopt.render.tabular import Tabular

if TYPE_CHECKING:
    from pandas import DataFrame

    from costopt.render.notebook import Chart

RunFrame = Literal["events", "nodes", "decisions", "spend", "progress"]
RunPlot = Literal["spend", "energy", "progress", "nodes"]
PLOTS: tuple[RunPlot, ...] = ("spend", "energy", "progress", "nodes")
FRAMES: tuple[RunFrame, ...] = ("events", "nodes", "decisions", "spend", "progress")


class LedgerReader(Tabular):
    """A ledger, opened for reading: no event, file or permission changes.

    ``place`` is the state directory of runs or of a daemon, a ledger's file, or a PostgreSQL URL.
    Close it, or use it in a ``with``. Jobs that run meanwhile go on; each call sees their newest
    events.
    """

    def __init__(self, place: StrPath) -> None:
        """Raise LedgerError if there is no ledger or it cannot be read, SpecError for another type,
        MissingExtraError for a URL without the extra daemon."""
        self.place = check_path("place", place)
        self.state_dir, self.ledger = _open(self.place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file or the connection; closing twice is not an error."""
        self.ledger.close()

    def jobs(self) -> tuple[str, ...]:
        """Return the names of all jobs, in the order of their first event. Raise LedgerError."""
        return self.ledger.jobs()

    def job(self, name: str) -> JobRun:
        """Return what is known of a job. Raise LedgerError for an unknown one."""
        check_known(self.ledger, self.place, name)
        return JobRun(name, self.ledger, partial(job_now, self.state_dir, name))

    def events(self, *, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield the events of all jobs in order, with numbers above ``after``. Raise
        LedgerError."""
        return self.ledger.events(after=check_count("after", after, low=0))

    def summaries(self) -> tuple[JobSummary, ...]:
        """Return every job's figures at the present of its clock. Raise LedgerError."""
        return tuple(summaries(self.ledger, lambda job, at: job_now(self.state_dir, job, at)))

    def to_frame(self) -> DataFrame:
        """Return one row per job, with the keys of costopt.status/1, dollars and shares saved.

        Raise MissingExtraError without pandas.
        """
        from costopt.frames import summaries_frame

        return summaries_frame(self.summaries())

    def table(self) -> Table:
        """Return the table of the jobs."""
        from costopt.views.job import jobs_table

        return jobs_table([{"summary": each} for each in self.summaries()])


class JobRun(Tabular):
    """A job's events, and what they fold to. Methods raise LedgerError.

    ``present`` returns the present of the job's clock, not before the instant that it is given.
    """

    def __init__(
        self, name: str, ledger: EventReader, present: Callable[[datetime], datetime]
    ) -> None:
        self.name = name
        self.ledger = ledger
        self._present = present
        self._fold: FoldState | None = None

    def events(self, *, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield the job's events in order, with numbers above ``after``."""
        return self.ledger.events(self.name, after=check_count("after", after, low=0))

    def has_events(self) -> bool:
        """Return whether there are any events of the job."""
        self._fold = load_fold(self.ledger, self.name, self._fold)
        return self._fold is not None

    def now(self) -> datetime:
        """Return the present of the job's clock: market time for a run on a simulated market."""
        return self._present(self._folded().last_at)

    def summary(self, now: datetime | None = None) -> JobSummary:
        """Return cost, energy, emissions and progress at ``now`` (default: the job's present).

        Raise SpecError for an instant before the job's last event.
        """
        at = check_instant("now", now)
        last_at = self._folded().last_at
        if at is not None and at < last_at:
            hint = "the figures are those after the last event; leave now out"
            raise bad_argument("now", f"is before the job's last event at {last_at}", hint)
        return self.account().summary(at or self.now())

    def nodes(self) -> tuple[NodeInterval, ...]:
        """Return every node in the order of launch, with what it cost and drew."""
        return self.account().intervals(self.now())

    def decisions(self) -> tuple[DecisionMade, ...]:
        """Return every decision, with what it cost to decide otherwise where that was explained."""
        newest = self.ledger.newest(DecisionMade, self.name)
        return tuple(event for _, event in reversed(list(newest)))

    def account(self) -> JobAccount:
        """Return the fold of the job's events; a later call adds what came since."""
        return self._folded().account

    def to_frame(self, what: RunFrame = "events") -> DataFrame:
        """Return one row per event, node, decision, or point of the curve of spend or progress.

        Raise MissingExtraError without pandas.
        """
        from costopt import frames

        match check_choice("what", what, FRAMES):
            case "events":
                return frames.events_frame(self.events())
            case "nodes":
                return frames.nodes_frame(self.nodes())
            case "decisions":
                return frames.decisions_frame(self.decisions())
            case "spend":
                return frames.spend_frame(self.account().curves(self.now()).spend)
            case "progress":
                return frames.progress_frame(self.account().curves(self.now()).progress)

    def plot(self, what: RunPlot = "spend") -> Chart:
        """Return a chart of spend, energy or progress over time, or of the nodes."""
        from costopt.ledger.run_view import RunView
        from costopt.render.notebook import to_chart
        from costopt.render.reports import run_charts

        view = RunView.of((recorded.event for recorded in self.events()), self.now())
        match check_choice("what", what, PLOTS):
            case "spend":
                return to_chart(f"Dollars of {self.name}", run_charts.spend_plot(view))
            case "energy":
                return to_chart(f"Energy of {self.name}", run_charts.energy_plot(view))
            case "progress":
                return to_chart(f"Progress of {self.name}", run_charts.progress_plot(view))
            case "nodes":
                return to_chart(f"Nodes of {self.name}", run_charts.timeline(view))

    def to_html(self) -> str:
        """Return the job's report as one HTML document."""
        from costopt.render.reports.run import run_page

        events = [recorded.event for recorded in self.events()]
        return run_page(events, now=self.now(), title=self.name)

    def table(self) -> Table:
        """Return the table of the job's figures at the present of its clock."""
        from costopt.views.job import job_table

        return job_table({"summary": self.summary()})

    def _folded(self) -> FoldState:
        self._fold = require_fold(self.ledger, self.name, self._fold)
        return self._fold


def _open(place: str) -> tuple[Path | None, DurableLedger]:
    """Return the state directory, None for a server, and the ledger."""
    if is_url(place):
        return None, open_ledger(place, read_only=True)
    path = Path(place)
    if path.is_file() or (path.suffix and not path.is_dir()):
        return path.parent, open_ledger(path, read_only=True)
    return path, open_state_ledger(path, read_only=True)
