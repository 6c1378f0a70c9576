"""The layout that all pages share: menu, health, refresh, templates, filter and cached charts.

All text is HTML-escaped by the templates, and a page loads nothing but the daemon's own style. The
charts of a job are drawn once per tick, however many readers there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from itertools import islice
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader

import costopt
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import Health, JobStatus
from costopt.domain.control import Halt, Mode, ProposalState
from costopt.formatting import second_text
from costopt.ledger.run_view import RunView
from costopt.render.html import template_environment
from costopt.render.page import Page, Plot
from costopt.render.reports.run_charts import (
    energy_plot,
    progress_plot,
    spend_plot,
    timeline,
)

REFRESH_S = 30
REFRESH = "refresh"
OFF = "off"
PLACES = (
    ("/", "Fleet"),
    ("/jobs", "Jobs"),
    ("/market", "Market"),
    ("/decisions", "Decisions"),
    ("/ledger", "Ledger"),
    ("/guards", "Guards"),
    ("/proposals", "Proposals"),
)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """The frame of a page at ``path``; ``words`` filter its rows, ``who`` reads it."""

    path: str
    words: str
    who: str
    signed_in: bool
    refreshes: bool
    now: datetime
    mode: Mode
    halt: Halt | None
    health: Health
    open_proposals: int

    @property
    def place(self) -> str:
        """Return the menu's entry for the page; a job's or a decision's page belongs to one."""
        places = [path for path, _ in PLACES if path != "/" and self.path.startswith(path)]
        return places[0] if places else "/"

    @property
    def other_refresh(self) -> str:
        """Return the address of this page with automatic refresh switched on if it is off, or off
        if it is on."""
        query: Mapping[str, str] = {REFRESH: OFF if self.refreshes else "on"}
        return f"?{urlencode({'q': self.words, **query} if self.words else query)}"


def build_layout(
    reader: TenantReader, path: str, words: str, who: str, *, signed_in: bool, refreshes: bool
) -> PageLayout:
    """Return the layout of a page. May raise LedgerError."""
    fleet = reader.fleet()
    return PageLayout(
        path=path,
        words=words,
        who=who,
        signed_in=signed_in,
        refreshes=refreshes,
        now=fleet.now,
        mode=fleet.mode,
        halt=fleet.halt,
        health=reader.health(),
        open_proposals=len(reader.proposals([ProposalState.OPEN])),
    )


STYLE_PATH = "/pages.css"
ICON_PATH = "/pages.svg"


def render(page: Page, frame: PageLayout) -> str:
    """Return the page as an HTML document."""
    return _environment().get_template("place.html.j2").render(page=page, frame=frame)


def render_notice(title: str, message: str, hint: str = "") -> str:
    """Return an HTML document that says why there is no page."""
    template = _environment().get_template("notice.html.j2")
    return template.render(title=title, message=message, hint=hint)


def render_login(then: str, refused: str = "") -> str:
    """Return an HTML document that asks for a token; ``then`` is the path shown after login."""
    return _environment().get_template("login.html.j2").render(then=then, refused=refused)


@cache
def style() -> str:
    """Return the style of the reports, whose charts the pages show, and the pages' own."""
    return _text("costopt.render", "page.css") + _text("costopt.daemon.pages", "pages.css")


@cache
def icon() -> str:
    """Return the pages' icon, as SVG."""
    return _text("costopt.daemon.pages", "icon.svg")


def _text(package: str, name: str) -> str:
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = template_environment(
        ChoiceLoader([PackageLoader("costopt.daemon.pages"), PackageLoader("costopt.render")])
    )
    environment.globals.update(
        version=costopt.__version__,
        style_path=STYLE_PATH,
        icon_path=ICON_PATH,
        places=PLACES,
        refresh_s=REFRESH_S,
    )
    environment.filters["instant"] = second_text
    return environment


KEPT = 32
MAX_EVENTS = 200_000
"""With more events a job's page shows figures and no curves, which would take seconds to compute.
"""
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class JobCharts:
    """The events of a job with its charts. ``run`` is None if there are no events, or too many;
    ``plots`` are empty then."""

    run: RunView | None
    plots: tuple[Plot, ...] = ()
    without_plots: str = ""


class ChartCache:
    """The charts read most recently, as of the last tick. Safe to share between threads; one draws
    at a time."""

    def __init__(self, service: DaemonService) -> None:
        self._service = service
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def of(self, job: str) -> JobCharts:
        """Return the job's charts. Raise LedgerError."""
        now = self._service.board.snapshot.now
        return self.keep(("job", job), lambda: _job_charts(self._service, job, now))

    def keep(self, name: Hashable, make: Callable[[], Kept]) -> Kept:
        """Return what ``make`` returned at this tick for this name, which says whose data it shows.

        Raise what it raises.
        """
        key = (name, self._service.board.snapshot.now)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            kept: Kept = self._kept[key]
            return kept


def _job_charts(service: DaemonService, job: str, now: datetime) -> JobCharts:
    events = tuple(each.event for each in islice(service.ledger.events(job), MAX_EVENTS))
    if not events:
        return JobCharts(None, (), "Nothing has happened to this job yet.")
    if len(events) == MAX_EVENTS:
        return JobCharts(None, (), f"Its curves are not drawn: it has over {MAX_EVENTS:,} events.")
    run = RunView.of(events, max(now, *(event.at for event in events)))
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


MAX_FILTER_LENGTH = 200


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a browser requested. ``name`` is the name in the path, "" if there is none; ``words``
    filter the rows."""

    name: str = ""
    words: str = ""

    def wants(self, *texts: str) -> bool:
        """Return whether each word occurs in one of the texts, in any case."""
        held = " ".join(texts).casefold()
        return all(word in held for word in self.words.casefold().split())


def wanted_jobs(reader: TenantReader, asked: PageRequest) -> list[JobStatus]:
    """Return the reader's jobs whose name or tenant has the filter's words."""
    return [s for s in reader.jobs() if asked.wants(s.submission.name, s.submission.tenant)]
