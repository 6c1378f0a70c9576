"""What the daemon tells of its own accord: events into the log, alerts to webhooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from costopt.daemon.event_log import EventLog
from costopt.daemon.service import Service
from costopt.daemon.webhooks import Webhooks
from costopt.domain.errors import CostoptError

EVENTS_EVERY_S = 1.0
WEBHOOKS_EVERY_S = 5.0
ENDS_WITHIN_S = 2.0

log = logging.getLogger("costopt.daemon.telling")


@dataclass(frozen=True, slots=True)
class Voice:
    """Whom the daemon tells. ``events``: each new event of the ledger goes into the log."""

    webhooks: Webhooks | None = None
    events: bool = False


SILENT = Voice()


@contextmanager
def telling(service: Service, after: int, voice: Voice) -> Iterator[None]:
    """Tell while the context lasts, each in a thread of its own: none holds up another, or a tick.

    ``after`` is the number of the last event that is no news.
    """
    with ExitStack() as held:
        if voice.events:
            held.enter_context(_repeated("events", EVENTS_EVERY_S, EventLog(service, after).follow))
        hooks = voice.webhooks
        if hooks is not None:
            held.enter_context(
                _repeated("webhooks", WEBHOOKS_EVERY_S, lambda: hooks.deliver(service.alerts))
            )
        yield


@contextmanager
def _repeated(name: str, every_s: float, act: Callable[[], None]) -> Iterator[None]:
    ended = Event()

    def run() -> None:
        while not ended.is_set():
            _try(name, act)
            ended.wait(every_s)
        _try(name, act)

    thread = Thread(target=run, name=f"costopt-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(ENDS_WITHIN_S)


def _try(name: str, act: Callable[[], None]) -> None:
    """A failure is told and tried again; the thread goes on."""
    try:
        act()
    except CostoptError as error:
        log.warning("%s: %s", name, error.message)
    except Exception:
        log.exception("%s failed", name)
