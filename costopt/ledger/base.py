"""The ports of a durable ledger, its leadership and its cached folds, and a ledger in memory.

A durable ledger is in a file or on a server. Cached folds only save time: all that they hold can be
folded from the events again. The ledger in memory is for replays and tests.
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
    """Events in a list; appending takes constant time."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __len__(self) -> int:
        return len(self._events)

    def append(self, *events: Event) -> None:
        """Append all of them; this cannot fail."""
        self._events.extend(events)

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield the events present when the iteration began, in order; seq counts from 1."""
        for index in range(after, len(self._events)):
            event = self._events[index]
            if job is None or event.job == job:
                yield RecordedEvent(index + 1, event)

    def newest(self, kind: type[AnyEvent], job: str) -> Iterator[tuple[int, AnyEvent]]:
        """Yield the job's events of a kind, newest first."""
        for seq, event in self._of_kind(kind):
            if event.job == job:
                yield seq, event

    def last_of_each(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        """Yield each job's newest event of a kind, newest first."""
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
    """The fold of the events up to ``seq``, in the form of the code with this digest."""

    seq: int
    code: str
    body: bytes


@dataclass(frozen=True, slots=True)
class LostEvents:
    """Events ``first`` to ``last`` were committed, and then lost by the server; ``restored``: they
    have been written again."""

    first: int
    last: int
    restored: bool


@runtime_checkable
class FoldCache(Protocol):
    """A ledger that stores folds beside its events."""

    def folds(self, part: str, job: str | None = None) -> dict[str, CachedFold]:
        """Return the cached folds of one job or of all, by job. Raises LedgerError."""
        ...


class Leadership(Protocol):
    """The right to act on a ledger's jobs, which one daemon holds at a time.

    Each time another daemon acquires it, the ledger's fencing token, a number, grows. Appends carry
    the token under which leadership was acquired, and are refused once it has grown.
    """

    @property
    def is_leader(self) -> bool:
        """Return whether it was held at the last check."""
        ...

    @property
    def fence(self) -> int | None:
        """Return the fencing token under which it was held last, None if it never was."""
        ...

    def acquire(self) -> bool:
        """Become or remain the leader; return False where another one leads.

        For the thread that acts, between its acts: where ``fence`` has changed, others may have led
        meanwhile, and all state must be read from the ledger again. Raises LedgerError.
        """
        ...

    def renew(self) -> bool:
        """Remain the leader, but never become it; for any thread, at least three times per lease.

        Returns False where it is lost, or was not held; then it only observes whether the leader
        lives. Raises LedgerError.
        """
        ...

    def check(self) -> None:
        """Check leadership right before an act, without asking the database.

        Raises LeadershipLostError unless it is certain that no other daemon leads yet.
        """
        ...

    def release(self) -> None:
        """Release leadership, so that another daemon can lead at once. Raises LedgerError."""
        ...


class FencedLedger(Protocol):
    """A ledger as its leadership sees it."""

    fence: int | None
    """The fencing token that appends carry; None before its leadership was acquired."""
    holder: str
    """Who acquired it."""

    def increment_fencing_token(self, holder: str) -> None:
        """Make appends with an older fencing token fail from now on. Raises LedgerError."""
        ...

    def last_fence(self) -> int:
        """Return the fencing token in the database. Raises LedgerError."""
        ...


class DurableLedger(EventIndex, FoldCache, Protocol):
    """Safe to share between threads; close it, or use it in a ``with``."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *of: object) -> None: ...

    def close(self) -> None:
        """Release files and connections; closing twice is not an error."""
        ...

    def jobs(self) -> tuple[str, ...]:
        """Return the names of all jobs, in the order of their first event. Raises LedgerError."""
        ...

    def last_seqs(self) -> dict[str, int]:
        """Return each job's last seq, in the order of their first. Raises LedgerError."""
        ...

    def save_folds(self, part: str, folds: Mapping[str, CachedFold]) -> None:
        """Store these in place of older ones. Raises LedgerError."""
        ...

    def last_seq(self) -> int:
        """Return the seq of the last event, 0 where there is none. Raises LedgerError."""
        ...

    def observe(self, seq: int) -> None:
        """Expect that the ledger holds an event with this number."""
        ...

    def restore_lost(self) -> LostEvents | None:
        """Write the events again that the server lost after it had committed them, as far as this
        process appended them; return which, None where none was lost.

        Raises LedgerError, and LeadershipLostError where another daemon leads.
        """
        ...

    def exclusive(self, job: str) -> AbstractContextManager[None]:
        """Be the job's only controller while the context lasts.

        Raises LedgerError where another one holds the job. The lock dies with its process.
        """
        ...

    def leadership(self, holder: str, lease_s: float) -> Leadership:
        """Return the leadership of this ledger, not yet acquired.

        ``holder`` is a name that no other living daemon has; ``lease_s`` is how long, in real time,
        an unreachable leader keeps others from leading.
        """
        ...


def open_ledger(
    place: Path | str, *, create: bool = True, read_only: bool = False
) -> DurableLedger:
    """Return the ledger in a file or at a PostgreSQL URL; with ``create`` False it must exist.

    One that is ``read_only`` refuses every write, and is not created.

    Raises LedgerError, MissingExtraError.
    """
    from costopt.ledger.sql_ledger import open_postgres_ledger, open_sqlite_ledger

    create = create and not read_only
    if is_url(place):
        return open_postgres_ledger(str(place), create=create, read_only=read_only)
    return open_sqlite_ledger(place, create=create, read_only=read_only)
