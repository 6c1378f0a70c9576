"""One controller per job on PostgreSQL, by an advisory lock that dies with its session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from sqlalchemy import text

from costopt.database.connection import Database
from costopt.domain.errors import LedgerError

_HOLDER = text(
    """
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low
    """
)


@contextmanager
def postgres_controller_lock(database: Database, job: str) -> Iterator[None]:
    """Hold the job; raises LedgerError where another controller does."""
    key = int.from_bytes(
        sha256(job.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True
    )
    with database.session() as session:
        if not session.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}):
            high, low = (key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF
            holder = session.scalar(_HOLDER, {"high": high, "low": low})
            raise LedgerError(
                f"job {job!r} in {database.what} already has a controller"
                f" (session {holder or 'unknown'} of the server)",
                hint="wait for it or stop it; `costopt status` shows what it does",
                code="controlled",
            )
        yield
