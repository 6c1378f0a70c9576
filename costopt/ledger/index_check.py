"""Compares what was read from a SQLite ledger with its other index.

The index by job and the index by kind hold the same events. So one that a damaged page hides from
the one is missed by the other. A server checks its own pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

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


@dataclass(slots=True)
class ReadEvents:
    """How many events were read after number ``after``, the sum of their numbers, and the last."""

    after: int
    count: int = 0
    total: int = 0
    last: int = 0

    def add(self, seqs: Sequence[int]) -> None:
        """Count events, which follow those before."""
        self.count += len(seqs)
        self.total += sum(seqs)
        self.last = seqs[-1]


def check_job(connection: SqlConnection, job: str, read: ReadEvents) -> None:
    """Raise LedgerError unless what was read are all events of the job up to the last of them.
    Raises it for a damaged index as well."""
    values = {"job": job, "after": read.after, "last": max(read.after, read.last)}
    with connection.reading() as transaction:
        up_to_last, by_job, by_kind = transaction.execute(_OF_JOB, values)
    if up_to_last != (read.count, read.total) or by_job != by_kind:
        raise damaged_error(f"the indexes do not agree on the events of job {job!r}")


def check_all(connection: SqlConnection, read: ReadEvents) -> None:
    """Raise LedgerError unless what was read are all events up to the last of them."""
    with connection.reading() as transaction:
        ((indexed,),) = transaction.execute(_OF_ALL, {"last": read.last})
    if indexed != read.count:
        raise damaged_error(f"{indexed} are in an index, and {read.count} were read")


def submitted_jobs(connection: SqlConnection) -> list[str]:
    """Return the jobs that were submitted, by the index of kinds."""
    with connection.reading() as transaction:
        return [job for (job,) in transaction.execute(_SUBMITTED, {"kind": JobSubmitted.kind})]


def check_jobs(submitted: Iterable[str], jobs: Collection[str]) -> None:
    """Raise LedgerError unless all jobs that were submitted are among these, read later."""
    missing = [job for job in submitted if job not in jobs]
    if missing:
        raise damaged_error(f"an index lacks job {missing[0]!r}")
