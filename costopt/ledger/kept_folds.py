"""The table of folds that are kept, in SQL that SQLite and PostgreSQL share.

It saves time only: all that it holds can be folded from the events again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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


def fold_parameters(part: str, job: str, fold: CachedFold) -> dict[str, object]:
    """The parameters of ``UPSERT_FOLD``."""
    return {"part": part, "job": job, "seq": fold.seq, "code": fold.code, "body": fold.body}
