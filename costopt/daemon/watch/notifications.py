"""Notifications: ledger events as lines of the log, and alerts that go to webhooks.

Each line of the log names the decision that its event follows. Alerts are derived from the
snapshots of the ticks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from threading import Thread

from costopt.daemon.http.schemas import to_json
from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import BudgetUse, SharedState, TickSnapshot
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.daemon.watch.webhooks import Webhooks
from costopt.domain import events as ev
from costopt.domain.errors import CostoptError
from costopt.domain.ports import EventIndex
from costopt.formatting import minute_text, usd_text
from costopt.ledger.job_query import ENDED
from costopt.ledger.summary import JobState, JobSummary

EVENTS_EVERY_S = 1.0
WEBHOOKS_EVERY_S = 5.0
STOP_TIMEOUT_S = 2.0

log = logging.getLogger("costopt.daemon.notifications")


@dataclass(frozen=True, slots=True)
class NotificationConfig:
    """Who is notified. With ``events``, each new event of the ledger is logged."""

    webhooks: Webhooks | None = None
    events: bool = False


NO_NOTIFICATIONS = NotificationConfig()


@contextmanager
def run_notifiers(service: DaemonService, after: int, voice: NotificationConfig) -> Iterator[None]:
    """Notify until the context ends, with one thread per receiver: none delays another, or a tick.

    Events up to the number ``after`` are old and not reported.
    """
    ended = threading.Event()
    threads = [
        Thread(target=_repeat, args=[task, ended], name=f"costopt-{task.name}", daemon=True)
        for task in _tasks(service, after, voice)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        latest_s = time.monotonic() + STOP_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, latest_s - time.monotonic()))


@dataclass(frozen=True, slots=True)
class _Task:
    """The work of one thread: ``act`` is called periodically."""

    name: str
    every_s: float
    act: Callable[[], None]


def _tasks(service: DaemonService, after: int, voice: NotificationConfig) -> Iterator[_Task]:
    if voice.events:
        yield _Task("events", EVENTS_EVERY_S, EventLogWriter(service.ledger, after).follow)
    if (hooks := voice.webhooks) is not None:
        for line in hooks.lines:
            deliver = partial(hooks.deliver, line, service.board.alerts)
            yield _Task(f"webhook {line.hook.name}", WEBHOOKS_EVERY_S, deliver)


def _repeat(task: _Task, ended: threading.Event) -> None:
    while not ended.is_set():
        _try(task)
        ended.wait(task.every_s)
    _try(task)


def _try(task: _Task) -> None:
    """Run the task; log a failure and return, so that the thread tries again."""
    try:
        task.act()
    except CostoptError as error:
        log.warning("%s: %s", task.name, error.message)
    except Exception:
        log.exception("%s failed", task.name)


MAX_BATCH = 1000
MAX_JOBS = 10_000
"""Number of jobs whose last decision is remembered: those with the most recent events."""
_QUIET = (ev.ProgressReported, ev.NodeMeasured)
_WARNINGS = (
    ev.GuardTripped,
    ev.HealthChanged,
    ev.JobFailed,
    ev.LaunchFailed,
    ev.NodeReplaced,
    ev.SignalStale,
)

events_log = logging.getLogger("costopt.events")


class EventLogWriter:
    """Logs the ledger's events that follow number ``after``; used by one thread at a time."""

    def __init__(self, ledger: EventIndex, after: int = 0) -> None:
        self._ledger = ledger
        self._after = after
        self._decisions: dict[str, str] = {}

    def follow(self) -> None:
        """Log the new events, those that are read together by their time. Raise LedgerError."""
        while events := list(islice(self._ledger.events(None, self._after), MAX_BATCH)):
            news = [(each, self._followed(each.event)) for each in events]
            for recorded, decision_id in sorted(news, key=lambda each: each[0].event.at):
                _write(recorded.seq, recorded.event, decision_id)
            self._after = events[-1].seq

    def _followed(self, event: ev.Event) -> str | None:
        last = self._decisions.pop(event.job, None)
        decision_id = event.decision_id if isinstance(event, ev.DecisionMade) else last
        if decision_id is not None:
            self._decisions[event.job] = decision_id
        if len(self._decisions) > MAX_JOBS:
            del self._decisions[next(iter(self._decisions))]
        return decision_id


def _write(seq: int, event: ev.Event, decision_id: str | None) -> None:
    fields = to_json(event)
    kind = fields.pop("kind")
    fields.pop("alternatives", None)
    extra = {
        "decision_id": decision_id,
        "job": event.job,
        "event": kind,
        "seq": seq,
        "fields": fields,
    }
    events_log.log(_level(event), "%s: %s", event.job, kind, extra=extra)


def _level(event: ev.Event) -> int:
    if isinstance(event, _WARNINGS):
        return logging.WARNING
    return logging.DEBUG if isinstance(event, _QUIET) else logging.INFO


STORM_WINDOW = timedelta(hours=1)
STORM_COUNT = 10
"""This many interruptions within STORM_WINDOW are a storm."""
SPENT_SOON = timedelta(days=1)


class AlertMonitor:
    """Compares each snapshot with the normal state, and alerts once until it is normal again."""

    def __init__(self, board: SharedState) -> None:
        self._board = board
        self._troubled: set[str] = set()
        self._failing: dict[str, str] = {}
        self._short: dict[str, set[tuple[str, str]]] = {}
        self._interruptions: dict[str, int] = {}
        self._closed: frozenset[str] = frozenset()
        self._recent: deque[tuple[datetime, int]] = deque()

    def look(self, seen: TickSnapshot) -> None:
        """Raise and clear the alerts that the newest snapshot calls for; closed jobs are checked
        once more."""
        over = self._closed & seen.closed
        jobs = {name: job for name, job in seen.summaries.items() if name not in over}
        for name, summary in jobs.items():
            self._look_at_deadline(seen, summary)
            if name in seen.guarded:
                self._board.alert(seen.now, AlertKind.BUDGET, name, f"{name}: {seen.guarded[name]}")
            else:
                self._board.settled(AlertKind.BUDGET, name)
            if summary.state is JobState.FAILED:
                self._board.alert(seen.now, AlertKind.FAILED, name, f"{name} failed")
        self._look_at_budgets(seen)
        self._look_for_troubles(seen)
        self._look_for_failing_nodes(seen)
        self._look_for_storm(seen, jobs)
        self._forget(seen.closed - over)
        self._closed = seen.closed

    def _look_at_budgets(self, seen: TickSnapshot) -> None:
        """Alert of a job whose budget will not last, and of limits that are spent within a day."""
        short: dict[str, list[BudgetUse]] = {}
        for use in seen.budgets:
            if use.spent_at is not None and (use.job or use.spent_at - seen.now <= SPENT_SOON):
                short.setdefault(use.job, []).append(use)
        limits = {job: {(use.holder, use.label) for use in uses} for job, uses in short.items()}
        for job in self._short.keys() | limits.keys():
            if self._short.get(job) != limits.get(job):
                self._board.settled(AlertKind.FORECAST, job)
        for job, uses in short.items():
            spent = "; ".join(
                f"{use.holder}, {use.label}: {usd_text(use.limit_usd)} spent by "
                f"{minute_text(use.spent_at)}"
                for use in uses
            )
            self._board.alert(seen.now, AlertKind.FORECAST, job, f"at the present rate, {spent}")
        self._short = limits

    def _look_for_troubles(self, seen: TickSnapshot) -> None:
        for name in self._troubled - seen.troubles.keys():
            self._board.settled(AlertKind.TROUBLE, name)
        for name, why in seen.troubles.items():
            self._board.alert(seen.now, AlertKind.TROUBLE, name, f"{name}: {why}")
        self._troubled = set(seen.troubles)

    def _look_for_failing_nodes(self, seen: TickSnapshot) -> None:
        """Alert of each further failure: the second may give another reason than the first."""
        for name in self._failing.keys() | seen.failing_nodes.keys():
            why = seen.failing_nodes.get(name)
            if why != self._failing.get(name):
                self._board.settled(AlertKind.NODES, name)
            if why is not None:
                self._board.alert(seen.now, AlertKind.NODES, name, f"{name}: {why}")
        self._failing = dict(seen.failing_nodes)

    def _look_at_deadline(self, seen: TickSnapshot, summary: JobSummary) -> None:
        name = summary.job
        slack_s = seen.slacks.get(name)
        short = slack_s is not None and slack_s < 0 and summary.state not in ENDED
        if summary.on_time is False:
            self._board.alert(seen.now, AlertKind.DEADLINE, name, f"{name} misses its deadline")
        elif short:
            self._board.alert(
                seen.now, AlertKind.DEADLINE, name, f"{name} is short of {-(slack_s or 0.0):.0f} s"
            )
        else:
            self._board.settled(AlertKind.DEADLINE, name)

    def _forget(self, closed: Iterable[str]) -> None:
        for name in closed:
            self._interruptions.pop(name, None)
            for kind in (AlertKind.DEADLINE, AlertKind.BUDGET, AlertKind.FAILED):
                self._board.settled(kind, name)

    def _look_for_storm(self, seen: TickSnapshot, jobs: Mapping[str, JobSummary]) -> None:
        new = 0
        for name, summary in jobs.items():
            new += summary.interruptions - self._interruptions.get(name, summary.interruptions)
            self._interruptions[name] = summary.interruptions
        if new:
            self._recent.append((seen.now, new))
        while self._recent and self._recent[0][0] <= seen.now - STORM_WINDOW:
            self._recent.popleft()
        count = sum(number for _, number in self._recent)
        if count >= STORM_COUNT:
            message = f"{count} nodes were interrupted within the last hour"
            self._board.alert(seen.now, AlertKind.INTERRUPTIONS, "", message)
        else:
            self._board.settled(AlertKind.INTERRUPTIONS, "")
