"""One controller per job on PostgreSQL, by an advisory lock that dies with its session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import Protocol

from costopt.database.migrations import SqlConnection, Transaction
from costopt.domain.errors import LedgerError

_HOLDER = """
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low
"""


class Sessions(SqlConnection, Protocol):
    """A database that gives connections of one's own."""

    def session(self) -> AbstractContextManager[Transaction]:
        """A connection of one's own, closed for good at the end. Raises LedgerError."""
        ...


@contextmanager
def postgres_controller_lock(database: Sessions, job: str) -> Iterator[None]:
    """Hold the job; raises LedgerError where another controller does."""
    key = int.from_bytes(
        sha256(job.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True
    )
    with database.session() as session:
        ((is_held,),) = session.execute("SELECT pg_try_advisory_lock(:key)", {"key": key})
        if not is_held:
            high, low = (key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF
            holders = [pid for (pid,) in session.execute(_HOLDER, {"high": high, "low": low})]
            raise LedgerError(
                f"job {job!r} in {database.what} already has a controller"
                f" (session {holders[0] if holders else 'unknown'} of the server)",
                hint="wait for it or stop it; `costopt status` shows what it does",
                code="controlled",
            )
        yield
