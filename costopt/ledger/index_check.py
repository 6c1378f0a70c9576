"""Compares what was read from a SQLite ledger with its other index.

The index by job and the index by kind hold the same events. So one that a damaged page hides from
the one is missed by the other. A server checks its own pages.
"""

from __future__ import annotations

from collections.abc import Collection

from costopt.database.migrations import SqlConnection
from costopt.domain.events import EVENT_TYPES, JobSubmitted
from costopt.ledger.checksums import damaged_error

_BY_JOB = "FROM events INDEXED BY events_by_job WHERE job = :job AND seq > :after"
_BY_KIND = (
    "FROM events INDEXED BY events_by_kind WHERE job = :job AND seq > :after AND kind IN ("
    + ", ".join(f"'{event_type.kind}'" for event_type in EVENT_TYPES)
    + ")"
)
_FIGURES = "SELECT count(*), total(seq)"
_OF_JOB = (
    f"{_FIGURES} {_BY_JOB} AND seq <= :last UNION ALL {_FIGURES} {_BY_JOB}"
    f" UNION ALL {_FIGURES} {_BY_KIND}"
)
_OF_ALL = "SELECT count(*) FROM events INDEXED BY events_by_kind WHERE seq <= :last"
_SUBMITTED = "SELECT DISTINCT job FROM events INDEXED BY events_by_kind WHERE kind = :kind"


def check_job(connection: SqlConnection, job: str, after: int, seqs: Collection[int]) -> None:
    """Raise LedgerError unless ``seqs`` are all events of the job after a number, up to the last of
    them. Raises it for a damaged index as well."""
    values = {"job": job, "after": after, "last": max(seqs, default=after)}
    with connection.reading() as transaction:
        read, by_job, by_kind = transaction.execute(_OF_JOB, values)
    if read != (len(seqs), sum(seqs)) or by_job != by_kind:
        raise damaged_error(f"the indexes do not agree on the events of job {job!r}")


def check_all(connection: SqlConnection, count: int, last: int) -> None:
    """Raise LedgerError unless there are so many events up to a number."""
    with connection.reading() as transaction:
        ((indexed,),) = transaction.execute(_OF_ALL, {"last": last})
    if indexed != count:
        raise damaged_error(f"{indexed} are in an index, and {count} were read")


def check_jobs(connection: SqlConnection, jobs: Collection[str]) -> None:
    """Raise LedgerError unless all jobs that were submitted are among these."""
    with connection.reading() as transaction:
        submitted = [job for (job,) in transaction.execute(_SUBMITTED, {"kind": JobSubmitted.kind})]
    missing = [job for job in submitted if job not in jobs]
    if missing:
        raise damaged_error(f"an index lacks job {missing[0]!r}")
