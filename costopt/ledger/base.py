"""The ports of a durable ledger and of leadership, and a ledger in memory.

A ledger that outlives its process, wherever it lies.

A ledger that lives and dies with the process: for replays and tests.

Folds that a ledger keeps beside its events.

They save time only: all that they hold can be folded from the events again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from costopt.database.database_url import is_url
from costopt.domain.events import Event
from costopt.domain.ports import AnyEvent, EventIndex, RecordedEvent


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


@dataclass(frozen=True, slots=True)
class CachedFold:
    """What the events up to ``seq`` come to, in the form of the code with this digest."""

    seq: int
    code: str
    body: bytes


@runtime_checkable
class FoldCache(Protocol):
    """A ledger that keeps folds beside its events."""

    def folds(self, part: str, job: str | None = None) -> dict[str, CachedFold]:
        """What was kept of one job or of all, by job. Raises LedgerError."""
        ...


class Leadership(Protocol):
    """The right to act on a ledger's jobs, which one daemon holds at a time.

    Each time another daemon takes it, the ledger's fence, a number, grows. Appends of a ledger
    whose leadership was taken carry the fence of that time and are refused once it has grown.
    """

    @property
    def is_leader(self) -> bool:
        """Whether it was held when last asked for."""
        ...

    @property
    def fence(self) -> int | None:
        """The number under which it was held last, None if it never was."""
        ...

    def acquire(self) -> bool:
        """Become the leader, or stay it; False where another one leads.

        For the thread that acts, between its acts: where ``fence`` is another than before, others
        may have led meanwhile, and all that it knows must be read from the ledger again. Raises
        LedgerError.
        """
        ...

    def renew(self) -> bool:
        """Stay the leader, but never become it; for any thread, at least three times per lease.

        False where it is lost, or not had; then it only looks whether the leader lives. Raises
        LedgerError.
        """
        ...

    def check(self) -> None:
        """To be called right before each act; asks nobody.

        Raises LeadershipLostError unless it is certain that no other daemon leads yet.
        """
        ...

    def release(self) -> None:
        """Let another one lead at once. Raises LedgerError."""
        ...


class FencedLedger(Protocol):
    """A ledger as its leadership sees it."""

    fence: int | None
    """The fencing token that appends carry; None before its leadership was acquired."""

    def increment_fencing_token(self, holder: str) -> None:
        """From now on appends that carry an older fence are refused. Raises LedgerError."""
        ...

    def last_fence(self) -> int:
        """The fence as the database holds it. Raises LedgerError."""
        ...


class DurableLedger(EventIndex, FoldCache, Protocol):
    """Safe to share between threads; close it, or use it in a ``with``."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *of: object) -> None: ...

    def close(self) -> None:
        """Release files and connections; closing twice is no error."""
        ...

    def jobs(self) -> tuple[str, ...]:
        """The names of all jobs, in the order of their first event. Raises LedgerError."""
        ...

    def last_seqs(self) -> dict[str, int]:
        """The number of each job's last event, in the order of their first. Raises LedgerError."""
        ...

    def save_folds(self, part: str, folds: Mapping[str, CachedFold]) -> None:
        """Keep these in the place of older ones. Raises LedgerError."""
        ...

    def exclusive(self, job: str) -> AbstractContextManager[None]:
        """Be the job's only controller while the context lasts.

        Raises LedgerError where another one holds the job. The lock dies with its process.
        """
        ...

    def leadership(self, holder: str, lease_s: float) -> Leadership:
        """The leadership of this ledger, not yet taken.

        ``holder`` is a name that no other living daemon has; ``lease_s`` how long, by the wall, a
        leader that is not heard of keeps others from leading.
        """
        ...


def open_ledger(place: Path | str, *, create: bool = True) -> DurableLedger:
    """The ledger in a file or at a PostgreSQL URL; with ``create`` False it must exist.

    Raises LedgerError, MissingExtraError.
    """
    from costopt.ledger.sql_ledger import open_postgres_ledger, open_sqlite_ledger

    if is_url(place):
        return open_postgres_ledger(str(place), create=create)
    return open_sqlite_ledger(place, create=create)
