"""The ledger on PostgreSQL (13 or newer): many writers, one at a time, and any number of readers.

Appends take an advisory lock, so that numbers follow the order of commits and readers that go on
from a number miss nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import Connection, TextClause, text

from costopt.database.connection import Database
from costopt.domain.errors import LedgerError
from costopt.domain.events import Event
from costopt.domain.ports import AnyEvent, RecordedEvent
from costopt.ledger import kinds
from costopt.ledger.codec import decode, encode
from costopt.ledger.fence import check_fencing_token
from costopt.ledger.kept_folds import (
    FOLDS,
    FOLDS_OF_JOB,
    LAST_SEQS,
    UPSERT_FOLD,
    CachedFold,
    fold_parameters,
)
from costopt.ledger.postgres_leadership import PostgresLeadership
from costopt.ledger.postgres_lock import postgres_controller_lock
from costopt.ledger.postgres_migrations import STEPS

PAGE_EVENTS = 1000
ADVISORY_LOCK = 0x436F5374
"""Of the ledger's writers ("CoSt")."""
COMMIT_CHECK_TIMEOUT_S = 15.0
"""How long the server is asked whether an append whose commit it did not answer was made."""

_INSERT = text(
    """
    INSERT INTO events (seq, job, kind, at, body)
    SELECT (SELECT coalesce(max(seq), 0) FROM events) + row.number, job, kind, at, body
    FROM unnest(
        CAST(:jobs AS text[]), CAST(:kinds AS text[]), CAST(:times AS timestamptz[]),
        CAST(:bodies AS text[])
    ) WITH ORDINALITY AS row (job, kind, at, body, number)
    """
)
_PAGE = text("SELECT seq, body FROM events WHERE seq > :after ORDER BY seq LIMIT :most")
_PAGE_OF_JOB = text(
    "SELECT seq, body FROM events WHERE job = :job AND seq > :after ORDER BY seq LIMIT :most"
)

_NEWEST, _LAST_OF_EACH = text(kinds.NEWEST), text(kinds.LAST_OF_EACH)


class PostgresLedger:
    """A durable ledger at a URL. Safe to share between threads and across restarts of the server.

    An append that the server did not answer is looked up, so that LedgerError always means that
    nothing was written, unless the message says that this is not known.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.database = Database("ledger", url, ADVISORY_LOCK)
        self.fence: int | None = None
        try:
            if create:
                STEPS.apply(self.database.write_transaction)
            else:
                self._check_exists()
        except LedgerError as error:
            self.database.close()
            if error.message.startswith(self.database.what):
                raise
            raise LedgerError(
                f"{self.database.what}: {error.message}", hint=error.hint, code=error.code
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; closing twice is no error."""
        self.database.close()

    def append(self, *events: Event) -> None:
        """All of them or none, durable on return.

        Raises LedgerError, and LeadershipLostError where another daemon leads.
        """
        if not events:
            return
        rows = {
            "jobs": [event.job for event in events],
            "kinds": [event.kind for event in events],
            "times": [_instant(event.at) for event in events],
            "bodies": [encode(event) for event in events],
        }
        transaction: str | None = None
        try:
            with self.database.write_transaction() as connection:
                self._check_fence(connection)
                connection.execute(_INSERT, rows)
                transaction = connection.scalar(text("SELECT CAST(pg_current_xact_id() AS text)"))
        except LedgerError as error:
            if transaction is None or not self._made(transaction, error):
                raise

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
        while rows := self._rows(_NEWEST, {**values, "before": before}):
            yield from self._of_kind(kind, rows)
            before = rows[-1][0]

    def last_of_each(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        """The newest event of a kind of each job, newest first. Raises LedgerError."""
        yield from self._of_kind(kind, self._rows(_LAST_OF_EACH, {"kind": kind.kind}))

    def jobs(self) -> tuple[str, ...]:
        """The names of all jobs, in the order of their first event."""
        return tuple(self.last_seqs())

    def last_seqs(self) -> dict[str, int]:
        """The number of each job's last event, in the order of their first. Raises LedgerError."""
        with self.database.read_transaction() as connection:
            return {row.job: row.seq for row in connection.execute(text(LAST_SEQS))}

    def folds(self, part: str, job: str | None = None) -> dict[str, CachedFold]:
        """What was kept of one job or of all, by job. Raises LedgerError."""
        query = text(FOLDS if job is None else FOLDS_OF_JOB)
        values = {"part": part} | ({} if job is None else {"job": job})
        with self.database.read_transaction() as connection:
            return {job: CachedFold(*kept) for job, *kept in connection.execute(query, values)}

    def save_folds(self, part: str, folds: Mapping[str, CachedFold]) -> None:
        """Keep these in the place of older ones. Raises LedgerError."""
        rows = [fold_parameters(part, job, fold) for job, fold in folds.items()]
        with self.database.write_transaction() as connection:
            connection.execute(text(UPSERT_FOLD), rows)

    @contextmanager
    def exclusive(self, job: str) -> Iterator[None]:
        """Be the job's only controller while the context lasts, or the server.

        Raises LedgerError where another one holds the job. The lock dies with its process.
        """
        with postgres_controller_lock(self.database, job):
            yield

    def leadership(self, holder: str, lease_s: float) -> PostgresLeadership:
        """The leadership of this ledger, not yet taken."""
        return PostgresLeadership(self, holder, lease_s)

    def _check_exists(self) -> None:
        with self.database.read_transaction() as connection:
            if connection.scalar(text("SELECT to_regclass('events')")) is None:
                raise LedgerError(
                    "the database holds no ledger",
                    hint="check the URL; a ledger is made by the daemon that first uses it",
                    code="missing",
                )

    def _check_fence(self, connection: Connection) -> None:
        if self.fence is None:
            return
        theirs, holder = connection.execute(text("SELECT fence, holder FROM leadership")).one()
        check_fencing_token(self.database.what, self.fence, theirs, holder)

    def _made(self, transaction: str, lost: LedgerError) -> bool:
        """Whether the transaction was committed whose connection was lost at its end."""
        give_up_at = time.monotonic() + COMMIT_CHECK_TIMEOUT_S
        while time.monotonic() < give_up_at:
            status = self._status(transaction)
            if status in ("committed", "aborted"):
                return status == "committed"
            time.sleep(0.1)
        raise LedgerError(
            f"{lost.message}; whether the events were written is not known",
            hint="start again from the ledger's events, as after a crash",
            code="outcome_unknown",
        ) from lost

    def _status(self, transaction: str) -> str | None:
        try:
            with self.database.read_transaction() as connection:
                status: str | None = connection.scalar(
                    text("SELECT pg_xact_status(CAST(CAST(:number AS text) AS xid8))"),
                    {"number": transaction},
                )
                return status
        except LedgerError:
            return None

    def _page(self, job: str | None, after: int) -> list[Any]:
        query = _PAGE if job is None else _PAGE_OF_JOB
        values = {"after": after, "most": PAGE_EVENTS} | ({} if job is None else {"job": job})
        return self._rows(query, values)

    def _rows(self, query: TextClause, values: Mapping[str, object]) -> list[Any]:
        with self.database.read_transaction() as connection:
            return list(connection.execute(query, values).all())

    def _of_kind(self, kind: type[AnyEvent], rows: list[Any]) -> Iterator[tuple[int, AnyEvent]]:
        for seq, body in rows:
            event = self._decoded(seq, body)
            assert isinstance(event, kind)
            yield seq, event

    def _decoded(self, seq: int, body: str) -> Event:
        try:
            return decode(body)
        except LedgerError as error:
            raise LedgerError(
                f"{self.database.what}, event {seq}: {error.message}",
                hint=error.hint,
                code=error.code,
            ) from error


def _instant(at: datetime) -> datetime:
    return at if at.tzinfo is None else at.astimezone(UTC)
