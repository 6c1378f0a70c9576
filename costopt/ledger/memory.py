"""A ledger that lives and dies with the process: for replays and tests."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.events import Event
from costopt.domain.ports import RecordedEvent


class MemoryLedger:
    """Events in a list; appending costs no more than a list does."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __len__(self) -> int:
        return len(self._events)

    def append(self, *events: Event) -> None:
        """All of them; nothing can fail."""
        self._events.extend(events)

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        """Events in order that were there when the iteration began; seq counts from 1."""
        for index in range(after, len(self._events)):
            event = self._events[index]
            if job is None or event.job == job:
                yield RecordedEvent(index + 1, event)
