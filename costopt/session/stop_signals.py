"""Signals that ask a run to stop, held back while a tick is under way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType

from costopt.controller.site import ScaledClockPort

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORCE_EXIT_COUNT = 3


@contextmanager
def handle_stop_signals(action: Callable[[int], None]) -> Iterator[None]:
    """Call ``action`` with the number of each stop signal while the context lasts.

    What the parent told this process to ignore, as nohup does with SIGHUP, stays ignored. To be
    called in the main thread.
    """

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals call it
        action(number)

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number, known in before.items():
        if known is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


class StopSignals:
    """Turns SIGINT, SIGTERM and SIGHUP into a KeyboardInterrupt between ticks.

    A tick that is cut in two may have launched what it has not noted yet. So a signal is heard
    while the run sleeps, at ``check`` and, from ``hear_at_once`` on, anywhere; the third is heard
    anywhere in any case. ``first`` is the number of the first signal. What the parent told this
    process to ignore, as nohup does with SIGHUP, stays ignored.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._count = 0
        self._unheard = 0
        self._at_once = False

    @contextmanager
    def caught(self) -> Iterator[StopSignals]:
        """Listen while the context lasts; outside the main thread nothing is listened to."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        with handle_stop_signals(self._take):
            yield self

    def check(self) -> None:
        """Raise KeyboardInterrupt where a signal came that nobody has heard yet."""
        if self._unheard:
            self._unheard = 0
            raise KeyboardInterrupt

    def interrupt_immediately(self) -> None:
        """From here on the next signal is raised wherever it finds the run."""
        self._at_once = True
        self.check()

    @contextmanager
    def received(self) -> Iterator[None]:
        """Nothing is under way that a signal could cut in two."""
        before, self._at_once = self._at_once, True
        try:
            self.check()
            yield
        finally:
            self._at_once = before

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """What happens here is not to be cut in two by anything but the impatient."""
        before, self._at_once = self._at_once, False
        try:
            yield
        finally:
            self._at_once = before

    def _take(self, number: int) -> None:
        self._count += 1
        self._unheard += 1
        self.first = self.first or number
        if self._at_once or self._count >= FORCE_EXIT_COUNT:
            self.check()


class InterruptibleClock:
    """A clock whose sleep hears stop signals."""

    def __init__(self, clock: ScaledClockPort, signals: StopSignals) -> None:
        self._clock = clock
        self._signals = signals

    @property
    def speed(self) -> float:
        """As the clock's."""
        return self._clock.speed

    def now(self) -> datetime:
        """The present, aware UTC."""
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait. Raises KeyboardInterrupt on a stop signal."""
        with self._signals.received():
            self._clock.sleep(seconds)
