"""A ledger whose controller dies as it writes."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.events import Event
from costopt.domain.ports import RecordedEvent
from costopt.ledger.base import MemoryLedger


class Crash(BaseException):
    """The controller is gone."""


class CrashingLedger:
    """Dies at its n-th append, before or after the events are durable."""

    def __init__(self, nth: int, durable: bool) -> None:
        self.inner = MemoryLedger()
        self._left, self._durable = nth, durable

    def append(self, *events: Event) -> None:
        self._left -= 1
        if self._left or self._durable:
            self.inner.append(*events)
        if not self._left:
            raise Crash

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        return self.inner.events(job, after)
