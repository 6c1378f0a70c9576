"""What the daemon tells of its own accord: events into the log, alerts to webhooks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Thread

from costopt.daemon.event_log import EventLogWriter
from costopt.daemon.service import DaemonService
from costopt.daemon.webhooks import Webhooks
from costopt.domain.errors import CostoptError

EVENTS_EVERY_S = 1.0
WEBHOOKS_EVERY_S = 5.0
STOP_TIMEOUT_S = 2.0

log = logging.getLogger("costopt.daemon.telling")


@dataclass(frozen=True, slots=True)
class NotificationConfig:
    """Whom the daemon tells. ``events``: each new event of the ledger goes into the log."""

    webhooks: Webhooks | None = None
    events: bool = False


NO_NOTIFICATIONS = NotificationConfig()


@contextmanager
def run_notifiers(service: DaemonService, after: int, voice: NotificationConfig) -> Iterator[None]:
    """Tell while the context lasts, each in a thread of its own: none holds up another, or a tick.

    ``after`` is the number of the last event that is no news.
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
    """One thread's work: ``act`` is done every so often."""

    name: str
    every_s: float
    act: Callable[[], None]


def _tasks(service: DaemonService, after: int, voice: NotificationConfig) -> Iterator[_Task]:
    if voice.events:
        yield _Task("events", EVENTS_EVERY_S, EventLogWriter(service, after).follow)
    if (hooks := voice.webhooks) is not None:
        for line in hooks.lines:
            deliver = partial(hooks.deliver, line, service.alerts)
            yield _Task(f"webhook {line.hook.name}", WEBHOOKS_EVERY_S, deliver)


def _repeat(task: _Task, ended: threading.Event) -> None:
    while not ended.is_set():
        _try(task)
        ended.wait(task.every_s)
    _try(task)


def _try(task: _Task) -> None:
    """A failure is told and tried again; the thread goes on."""
    try:
        task.act()
    except CostoptError as error:
        log.warning("%s: %s", task.name, error.message)
    except Exception:
        log.exception("%s failed", task.name)
