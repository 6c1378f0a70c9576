"""The ledger in a SQLite file or a PostgreSQL database, with the same SQL on both.

Appends to one ledger wait for each other, so that numbers follow the order of commits and readers
that continue from a number miss nothing. Also the recovery of events from a damaged ledger.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Self

from costopt.database.migrations import SqlConnection, Transaction, Values
from costopt.database.sqlite import SqliteConnection
from costopt.domain.errors import LeadershipLostError, LedgerError
from costopt.domain.events import Event
from costopt.domain.ports import AnyEvent, RecordedEvent
from costopt.ledger.appended_events import AppendedEvents
from costopt.ledger.base import CachedFold, Leadership, LostEvents
from costopt.ledger.checksums import seal_fold, unseal_fold
from costopt.ledger.codec import decode, encode
from costopt.ledger.dialects import (
    Dialect,
    PostgresConnection,
    PostgresDialect,
    SqliteDialect,
    check_sqlite_application,
    check_sqlite_structure,
)
from costopt.ledger.index_check import (
    ReadEvents,
    check_all,
    check_job,
    check_jobs,
    submitted_jobs,
)
from costopt.ledger.stored_events import check_lookup, events_after, sound_event

PAGE_EVENTS = 1000
PAGE_EVENTS_OF_KIND = 100
MAX_CHECKED_BYTES = 16 * 2**20
"""A file up to this size is checked at each opening, in less than a tenth of a second; a daemon
checks larger ones when it starts."""
END = 2**62
"""Above the number of any event."""
ADVISORY_LOCK = 0x436F5374
"""The lock of the ledger's writers on PostgreSQL ("CoSt")."""

INSERT = """
    INSERT INTO events (seq, job, kind, at, body) VALUES (:seq, :job, :kind, :at, :body)
"""
LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM events"
LEADER = f"SELECT fence, holder, ({LAST_SEQ}) FROM leadership"  # noqa: S608
BODY = "SELECT body FROM events WHERE seq = :seq"
PAGE = "SELECT seq, body FROM events WHERE seq > :after ORDER BY seq LIMIT :most"
PAGE_OF_JOB = (
    "SELECT seq, body FROM events WHERE job = :job AND seq > :after ORDER BY seq LIMIT :most"
)
NEWEST = """
    SELECT seq, body FROM events WHERE kind = :kind AND job = :job AND seq < :before
    ORDER BY seq DESC LIMIT :most
"""
LAST_OF_EACH = """
    SELECT seq, body FROM events
    WHERE seq IN (SELECT max(seq) FROM events WHERE kind = :kind GROUP BY job)
    ORDER BY seq DESC
"""
# Hops from name to name in the index: a plain GROUP BY would read every event.
LAST_SEQS = """
    WITH RECURSIVE names (job) AS (
        SELECT min(job) FROM events
        UNION ALL
        SELECT (SELECT min(job) FROM events WHERE job > names.job)
        FROM names WHERE names.job IS NOT NULL
    )
    SELECT job, (SELECT max(seq) FROM events WHERE events.job = names.job) AS seq
    FROM names WHERE job IS NOT NULL
    ORDER BY (SELECT min(seq) FROM events WHERE events.job = names.job)
"""
FOLDS = "SELECT job, seq, code, body FROM folds WHERE part = :part"
FOLDS_OF_JOB = f"{FOLDS} AND job = :job"
UPSERT_FOLD = """
    INSERT INTO folds (job, part, seq, code, body) VALUES (:job, :part, :seq, :code, :body)
    ON CONFLICT (job, part) DO UPDATE SET seq = excluded.seq, code = excluded.code,
        body = excluded.body
    WHERE excluded.seq > folds.seq OR excluded.code <> folds.code
"""


class SqlLedger:
    """Implements DurableLedger. Safe to share between threads, and across restarts of a server."""

    def __init__(self, connection: SqlConnection, dialect: Dialect, *, create: bool = True) -> None:
        """Create or migrate the tables; takes over the connection. Raises LedgerError."""
        self.fence: int | None = None
        self.holder = ""
        self._appending = Lock()
        self._appended = AppendedEvents()
        self._connection = connection
        self._dialect = dialect
        try:
            dialect.migrations.apply(connection, create=create)
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def close(self) -> None:
        """Release files and connections; closing twice is not an error."""
        self._connection.close()

    def append(self, *events: Event) -> None:
        """Append all of them or none, durable on return.

        Raises LedgerError, and LeadershipLostError where another daemon leads.
        """
        if not events:
            return
        rows = [
            {"job": e.job, "kind": e.kind, "at": e.at.isoformat(), "body": encode(e)}
            for e in events
        ]
        with self._appending:
            with self._connection.writing() as transaction:
                last = self._check_fence(transaction)
                numbered = self._appended.number(self._connection.what, last, rows)
                transaction.executemany(INSERT, numbered)
            self._appended.add(numbered)

    def observe(self, seq: int) -> None:
        """Expect that the ledger holds an event with this number."""
        self._appended.observe(seq)

    def restore_lost(self) -> LostEvents | None:
        """Write the events again that the server lost after it had committed them, as far as this
        process appended them; return which, None where none was lost.

        Raises LedgerError, and LeadershipLostError where another daemon leads.
        """
        with self._appending:
            if self.last_seq() >= self._appended.last:
                return None
            with self._connection.writing() as transaction:
                last, expected = self._check_fence(transaction), self._appended.last
                body = next((body for (body,) in transaction.execute(BODY, {"seq": last})), None)
                rows = self._appended.lost_after(last, body)
                transaction.executemany(INSERT, rows)
            if not rows:
                self._appended.accept_loss(last)
            return LostEvents(last + 1, expected, restored=bool(rows))

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield events in order, of one job or of all, with seq > ``after``, page by page.

        Those appended before the iteration reaches the end are included. Raises LedgerError.
        """
        query = PAGE if job is None else PAGE_OF_JOB
        values = {"most": PAGE_EVENTS} | _of_job(job)
        follows, read = None if after or job is not None else 0, ReadEvents(after)
        while rows := self._read(query, {**values, "after": after}):
            self._appended.observe(rows[-1][0])
            for seq, body in rows:
                event = self._decoded(seq, body, job, follows=follows)
                yield RecordedEvent(seq, event)
                follows = seq if job is None else None
            read.add([seq for seq, _ in rows])
            after = read.last
        if self._dialect.checks_indexes:
            self._check_read(job, read)

    def newest(self, kind: type[AnyEvent], job: str) -> Iterator[tuple[int, AnyEvent]]:
        """Yield the job's events of a kind, newest first, page by page. Raises LedgerError."""
        values = {"kind": kind.kind, "job": job, "most": PAGE_EVENTS_OF_KIND}
        before = END
        while rows := self._read(NEWEST, {**values, "before": before}):
            yield from self._of_kind(kind, rows, job)
            before = rows[-1][0]

    def last_of_each(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        """Yield each job's newest event of a kind, newest first. Raises LedgerError."""
        yield from self._of_kind(kind, self._read(LAST_OF_EACH, {"kind": kind.kind}))

    def jobs(self) -> tuple[str, ...]:
        """Return the names of all jobs, in the order of their first event."""
        return tuple(self.last_seqs())

    def last_seqs(self) -> dict[str, int]:
        """Return each job's last seq, in the order of their first. Raises LedgerError."""
        # Before the jobs: one that is submitted meanwhile is not missing from them.
        submitted = submitted_jobs(self._connection) if self._dialect.checks_indexes else ()
        found = dict(self._read(LAST_SEQS))
        with self._named_errors():
            check_jobs(submitted, found)
        return found

    def last_seq(self) -> int:
        """Return the seq of the last event, 0 where there is none. Raises LedgerError."""
        return int(self._read(LAST_SEQ)[0][0])

    def folds(self, part: str, job: str | None = None) -> dict[str, CachedFold]:
        """Return the cached folds of one job or of all, by job, that are sound. Raises
        LedgerError."""
        rows = self._read(FOLDS if job is None else FOLDS_OF_JOB, {"part": part} | _of_job(job))
        return {
            job: CachedFold(seq, code, sound)
            for job, seq, code, body in rows
            if (sound := unseal_fold(body, part, job, seq, code)) is not None
        }

    def save_folds(self, part: str, folds: Mapping[str, CachedFold]) -> None:
        """Store these in place of older ones. Raises LedgerError."""
        rows = [
            {
                "part": part,
                "job": job,
                "seq": fold.seq,
                "code": fold.code,
                "body": seal_fold(fold.body, part, job, fold.seq, fold.code),
            }
            for job, fold in folds.items()
        ]
        with self._connection.writing() as transaction:
            transaction.executemany(UPSERT_FOLD, rows)

    def exclusive(self, job: str) -> AbstractContextManager[None]:
        """Be the job's only controller while the context lasts.

        Raises LedgerError where another one holds the job. The lock dies with its process.
        """
        return self._dialect.exclusive(job)

    def leadership(self, holder: str, lease_s: float) -> Leadership:
        """Return the leadership of this ledger, not yet acquired."""
        return self._dialect.leadership(self, holder, lease_s)

    def increment_fencing_token(self, holder: str) -> None:
        """Make appends with an older fencing token fail from now on. Raises LedgerError."""
        with self._connection.writing() as transaction:
            transaction.execute(
                "UPDATE leadership SET fence = fence + 1, holder = :holder", {"holder": holder}
            )
            ((self.fence,),) = transaction.execute("SELECT fence FROM leadership")
            self.holder = holder

    def last_fence(self) -> int:
        """Return the fencing token in the database. Raises LedgerError."""
        return int(self._read("SELECT fence FROM leadership")[0][0])

    def _check_fence(self, transaction: Transaction) -> int:
        """Return the number of the last event. Raises LeadershipLostError."""
        ((theirs, holder, last),) = transaction.execute(LEADER)
        # After a failover that lost commits, another one may lead under a number that was ours.
        is_ours = theirs == self.fence and holder in (self.holder, "")
        if self.fence is not None and not is_ours:
            raise LeadershipLostError(
                f"{self._connection.what}: {holder or 'another daemon'} leads under fence"
                f" {theirs}, ours was {self.fence}",
                hint="nothing was written; this daemon stands by until the other one is gone",
            )
        return int(last)

    def _read(self, query: str, values: Values | None = None) -> list[Any]:
        with self._connection.reading() as transaction:
            return transaction.execute(query, values)

    def _of_kind(
        self, kind: type[AnyEvent], rows: list[Any], job: str | None = None
    ) -> Iterator[tuple[int, AnyEvent]]:
        for seq, body in rows:
            event = self._decoded(seq, body, job, kind)
            assert isinstance(event, kind)
            yield seq, event

    def _decoded(
        self,
        seq: int,
        body: str,
        job: str | None = None,
        kind: type[Event] = Event,
        *,
        follows: int | None = None,
    ) -> Event:
        """Return the event, which was looked up as one of this job and kind, and read after number
        ``follows``. Raises LedgerError where it is none of them."""
        with self._named_errors(f", event {seq}"):
            event = decode(sound_event(seq, body, follows).text)
            check_lookup(event, job, kind)
            return event

    def _check_read(self, job: str | None, read: ReadEvents) -> None:
        """Raise LedgerError unless these are all events of one job, or of all."""
        with self._named_errors():
            if job is not None:
                check_job(self._connection, job, read)
            elif not read.after:
                check_all(self._connection, read)

    @contextmanager
    def _named_errors(self, place: str = "") -> Iterator[None]:
        """Name the ledger, and the place in it, in the messages of what is damaged."""
        try:
            yield
        except LedgerError as error:
            raise LedgerError(
                f"{self._connection.what}{place}: {error.message}",
                hint=error.hint,
                code=error.code,
            ) from error


def open_postgres_ledger(url: str, *, create: bool = True, read_only: bool = False) -> SqlLedger:
    """Return the ledger at a URL; with ``create`` False it must exist.

    Raises LedgerError, MissingExtraError.
    """
    # Reading a file must not wait for SQLAlchemy to be imported.
    from costopt.database.connection import Database

    database = Database("ledger", url, ADVISORY_LOCK, read_only=read_only)
    return SqlLedger(PostgresConnection(database), PostgresDialect(database), create=create)


def open_sqlite_ledger(
    path: Path | str, *, create: bool = True, read_only: bool = False
) -> SqlLedger:
    """Return the ledger at ``path``; with ``create`` False it must exist. Raises LedgerError."""
    path = Path(path)
    _check_path(path, create=create)
    if create and not path.exists():
        _make(path)
    return _open(path, path, create=create, read_only=read_only)


def _of_job(job: str | None) -> dict[str, str]:
    return {} if job is None else {"job": job}


def _check_path(path: Path, *, create: bool) -> None:
    if path.is_dir():
        raise LedgerError(
            f"ledger {path} is a folder", hint="name a file inside it", code="is_folder"
        )
    if not path.parent.is_dir():
        raise LedgerError(
            f"ledger {path}: the folder {path.parent} does not exist",
            hint=f"create it: mkdir -p {path.parent}",
            code="missing",
        )
    if create:
        return
    if not path.exists():
        raise LedgerError(
            f"ledger {path} does not exist",
            hint="check the path; a ledger is made by the first run that is applied",
            code="missing",
        )
    if path.stat().st_size == 0:
        raise LedgerError(f"ledger {path} is empty", hint="restore it from a backup", code="empty")


def _open(path: Path, file: Path, *, create: bool, read_only: bool = False) -> SqlLedger:
    """Return the ledger ``path``, stored in ``file``, with durable commits."""
    connection = SqliteConnection(f"ledger {path}", file, create=create, read_only=read_only)
    try:
        check_sqlite_application(connection)
        if file.stat().st_size <= MAX_CHECKED_BYTES:
            check_sqlite_structure(connection)
        ledger = SqlLedger(connection, SqliteDialect(path), create=create)
        if not read_only:
            connection.set_durable()
    except BaseException:
        connection.close()
        raise
    return ledger


def _make(path: Path) -> None:
    """Create a new ledger atomically: a reader meanwhile sees none, not an empty file."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        _open(path, fresh, create=True).close()
        _put_if_absent(fresh, path)
    finally:
        for left in fresh.parent.glob(f"{fresh.name}*"):
            left.unlink(missing_ok=True)


def _put_if_absent(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    except OSError:
        # a file system without hard links
        if not path.exists():
            fresh.rename(path)


def salvage_events(damaged: Path, ledger: SqlLedger) -> int:
    """Append to a restored ledger the events that follow its last one in the damaged file.

    Stops at the first that is missing or cannot be read, so that the restored ledger is what the
    damaged one once was. Returns how many were saved. Raises LedgerError where appending fails.
    """
    events = events_after(damaged, ledger.last_seq())
    ledger.append(*events)
    return len(events)
