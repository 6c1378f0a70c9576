"""The ledger as a SQLite file: one writer, any number of readers meanwhile.

Write-ahead logging with ``synchronous = FULL``: an append is on the disk when it returns, and a
crash leaves whole batches only (sqlite.org/wal.html, sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Self
from urllib.parse import quote

from costopt.database.failure import sqlite_error
from costopt.database.private import make_private
from costopt.domain.errors import LedgerError
from costopt.domain.events import Event
from costopt.domain.ports import AnyEvent, RecordedEvent
from costopt.ledger import kinds
from costopt.ledger.codec import decode, encode
from costopt.ledger.fence import check_fencing_token
from costopt.ledger.file_leadership import FileLeadership
from costopt.ledger.kept_folds import (
    FOLDS,
    FOLDS_OF_JOB,
    LAST_SEQS,
    UPSERT_FOLD,
    CachedFold,
    fold_parameters,
)
from costopt.ledger.lock import controller_lock
from costopt.ledger.migrations import migrate

BUSY_TIMEOUT_S = 10.0
PAGE_EVENTS = 1000


def open_sqlite_ledger(path: Path | str, *, create: bool = True) -> SqlLedger:
    """The ledger at ``path``; with ``create`` False it must exist. Raises LedgerError."""
    return SqlLedger(path, create=create)


class SqlLedger:
    """A durable ledger. Safe to share between threads; close it, or use it in a ``with``.

    A file that this user may not write to can still be read where SQLite can map its index.
    """

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self.path = Path(path)
        self.fence: int | None = None
        self._lock = Lock()
        _check_place(self.path, create)
        try:
            self._connection = _connect(self.path, create)
        except sqlite3.Error as error:
            raise sqlite_error(f"ledger {self.path}", error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file; closing twice is no error."""
        with self._lock:
            self._connection.close()

    def append(self, *events: Event) -> None:
        """All of them or none, durable on return.

        Raises LedgerError, and LeadershipLostError where another daemon leads.
        """
        if not events:
            return
        rows = [(event.job, event.kind, event.at.isoformat(), encode(event)) for event in events]
        with self._lock, self._writing():
            self._insert(rows)

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        """Events in order, of one job or of all, with seq > ``after``, read a page at a time.

        Those appended before the iteration reaches the end are included. Raises LedgerError.
        """
        while rows := self._page(job, after):
            for seq, body in rows:
                yield RecordedEvent(seq, self._decoded(seq, body))
            after = rows[-1][0]

    def newest(self, kind: type[AnyEvent], job: str) -> Iterator[tuple[int, AnyEvent]]:
        """The job's events of a kind, newest first, read a page at a time. Raises LedgerError."""
        values = {"kind": kind.kind, "job": job, "most": kinds.PAGE_EVENTS}
        before = kinds.END
        while rows := self._read(kinds.NEWEST, {**values, "before": before}):
            yield from self._of_kind(kind, rows)
            before = rows[-1][0]

    def last_of_each(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        """The newest event of a kind of each job, newest first. Raises LedgerError."""
        yield from self._of_kind(kind, self._read(kinds.LAST_OF_EACH, {"kind": kind.kind}))

    def jobs(self) -> tuple[str, ...]:
        """The names of all jobs, in the order of their first event."""
        return tuple(self.last_seqs())

    def last_seqs(self) -> dict[str, int]:
        """The number of each job's last event, in the order of their first. Raises LedgerError."""
        return dict(self._read(LAST_SEQS, ()))

    def folds(self, part: str, job: str | None = None) -> dict[str, CachedFold]:
        """What was kept of one job or of all, by job. Raises LedgerError."""
        rows = self._read(FOLDS if job is None else FOLDS_OF_JOB, {"part": part, "job": job})
        return {job: CachedFold(*kept) for job, *kept in rows}

    def save_folds(self, part: str, folds: Mapping[str, CachedFold]) -> None:
        """Keep these in the place of older ones. Raises LedgerError."""
        rows = [fold_parameters(part, job, fold) for job, fold in folds.items()]
        with self._lock, self._writing():
            self._connection.executemany(UPSERT_FOLD, rows)

    def last_seq(self) -> int:
        """The number of the last event, 0 where there is none. Raises LedgerError."""
        return int(self._read("SELECT coalesce(max(seq), 0) FROM events", ())[0][0])

    def exclusive(self, job: str) -> AbstractContextManager[None]:
        """Be the job's only controller while the context lasts.

        Raises LedgerError where another one holds the job. The lock dies with its process.
        """
        return controller_lock(self.path, job)

    def leadership(self, holder: str, lease_s: float) -> FileLeadership:  # noqa: ARG002
        """The leadership of this ledger, not yet taken; its lock needs no lease."""
        return FileLeadership(self, holder)

    def increment_fencing_token(self, holder: str) -> None:
        """From now on appends that carry an older fence are refused. Raises LedgerError."""
        with self._lock, self._writing():
            self._connection.execute(
                "UPDATE leadership SET fence = fence + 1, holder = ?", (holder,)
            )
            self.fence, _ = self._leader()

    def last_fence(self) -> int:
        """The fence as the file holds it. Raises LedgerError."""
        rows = self._read("SELECT fence FROM leadership", ())
        return int(rows[0][0])

    def _leader(self) -> tuple[int, str]:
        fence, holder = self._connection.execute("SELECT fence, holder FROM leadership").fetchone()
        return fence, holder

    def _insert(self, rows: list[tuple[str, str, str, str]]) -> None:
        if self.fence is not None:
            check_fencing_token(f"ledger {self.path}", self.fence, *self._leader())
        self._connection.executemany(
            "INSERT INTO events (job, kind, at, body) VALUES (?, ?, ?, ?)", rows
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise sqlite_error(f"ledger {self.path}", error) from error
        except UnicodeEncodeError as error:
            raise LedgerError(
                f"ledger {self.path}: a job's name is no valid text: {error}",
                hint="rename the job",
                code="invalid_text",
            ) from error

    def _page(self, job: str | None, after: int) -> list[tuple[int, str]]:
        if job is None:
            return self._read(
                "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
                (after, PAGE_EVENTS),
            )
        return self._read(
            "SELECT seq, body FROM events WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?",
            (job, after, PAGE_EVENTS),
        )

    def _read(self, query: str, parameters: tuple[object, ...] | dict[str, object]) -> list[Any]:
        with self._lock:
            try:
                return self._connection.execute(query, parameters).fetchall()
            except sqlite3.Error as error:
                raise sqlite_error(f"ledger {self.path}", error) from error

    def _of_kind(
        self, kind: type[AnyEvent], rows: list[tuple[int, str]]
    ) -> Iterator[tuple[int, AnyEvent]]:
        for seq, body in rows:
            event = self._decoded(seq, body)
            assert isinstance(event, kind)
            yield seq, event

    def _decoded(self, seq: int, body: str) -> Event:
        try:
            return decode(body)
        except LedgerError as error:
            raise LedgerError(
                f"ledger {self.path}, event {seq}: {error.message}",
                hint=error.hint,
                code=error.code,
            ) from error


def _check_place(path: Path, create: bool) -> None:
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


def _connect(path: Path, create: bool) -> sqlite3.Connection:
    if create and not path.exists():
        _make(path)
    connection = _open(path, "rwc" if create else "rw")
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """A new ledger appears whole: whoever looks meanwhile sees none, not an empty file."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        connection = _open(fresh, "rwc")
        try:
            _prepare(connection, fresh)
        finally:
            connection.close()
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


def _open(path: Path, mode: str) -> sqlite3.Connection:
    make_private(path, create=mode == "rwc")
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    try:
        migrate(connection)
    except LedgerError as error:
        raise LedgerError(
            f"ledger {path}: {error.message}", hint=error.hint, code=error.code
        ) from error
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    if journal != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
