"""Jobs whose nodes may run on although no process controls them any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from costopt.domain.errors import LedgerError
from costopt.domain.events import NodeEnded, TerminateIntended
from costopt.domain.fleet import EndCause, Node
from costopt.ledger.stored import DurableLedger
from costopt.session.orphans import read_records
from costopt.session.state_lock import run_lock


@contextmanager
def abandoned_jobs(ledgers: Mapping[Path, DurableLedger]) -> Iterator[frozenset[str]]:
    """The jobs with living nodes or launches under way that no process controls.

    ``ledgers`` are by their state directory.
    No process begins to control them while the context lasts. A job that cannot be locked, for
    whatever reason, counts as controlled. Raises LedgerError where a ledger cannot be read.
    """
    records = read_records(ledgers.values())
    names = {name for name, record in records.items() if record.live or record.intents}
    controlled: set[str] = set()
    with ExitStack() as held:
        for state_dir, ledger in ledgers.items():
            mine = names.intersection(ledger.jobs())
            try:
                held.enter_context(run_lock(state_dir))
            except LedgerError:
                controlled |= mine
                continue
            controlled |= {job for job in mine if not _is_taken(held, ledger, job)}
        yield frozenset(names - controlled)


def record_release(ledgers: Sequence[DurableLedger], node: Node, now: datetime, why: str) -> None:
    """Write to the ledgers in which the node lives that it was terminated. Raises LedgerError."""
    for ledger in ledgers:
        record = read_records([ledger], node.job).get(node.job)
        if record is None or node.node_id not in record.live:
            continue
        pool = record.live[node.node_id].pool
        ledger.append(
            TerminateIntended(at=now, job=node.job, node_id=node.node_id, reason=why),
            NodeEnded(
                at=now,
                job=node.job,
                node_id=node.node_id,
                pool=pool,
                ended_at=now,
                cause=EndCause.RELEASED,
            ),
        )


def _is_taken(held: ExitStack, ledger: DurableLedger, job: str) -> bool:
    try:
        held.enter_context(ledger.exclusive(job))
    except LedgerError:
        return False
    return True
