"""A ledger that lives and dies with the process: for replays and tests."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.events import Event
from costopt.domain.ports import AnyEvent, RecordedEvent


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

    def newest(self, kind: type[AnyEvent], job: str) -> Iterator[tuple[int, AnyEvent]]:
        """The job's events of a kind, newest first."""
        for seq, event in self._of_kind(kind):
            if event.job == job:
                yield seq, event

    def last_of_each(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        """The newest event of a kind of each job, newest first."""
        seen: set[str] = set()
        for seq, event in self._of_kind(kind):
            if event.job not in seen:
                seen.add(event.job)
                yield seq, event

    def _of_kind(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        for seq in range(len(self._events), 0, -1):
            event = self._events[seq - 1]
            if type(event) is kind:
                yield seq, event
