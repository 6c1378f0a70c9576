"""What runs or lies in a cloud under our owner tag, and that no ledger answers for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.fleet import Node
from costopt.domain.ports import Ledger
from costopt.ledger.job_record import JobRecord
from costopt.provider.base import Capability, OrphanedResource, Provider


@dataclass(frozen=True, slots=True)
class Orphan:
    """``thing`` is a node or what else is left, ``why`` says why nobody answers for it."""

    thing: Node | OrphanedResource
    why: str

    @property
    def kind(self) -> str:
        """ "node", or the provider's word."""
        return "node" if isinstance(self.thing, Node) else self.thing.kind

    @property
    def name(self) -> str:
        """As the provider calls it."""
        return self.thing.node_id if isinstance(self.thing, Node) else self.thing.name

    @property
    def place(self) -> str:
        """The pool, or "provider/region"."""
        return str(self.thing.pool) if isinstance(self.thing, Node) else self.thing.place

    @property
    def since(self) -> datetime | None:
        """When it was made; None where the provider does not tell."""
        if isinstance(self.thing, Node):
            return self.thing.launched_at
        return self.thing.created_at


def read_records(ledgers: Iterable[Ledger], job: str | None = None) -> Mapping[str, JobRecord]:
    """What the ledgers hold of every job, or of one. Raises LedgerError."""
    records: dict[str, JobRecord] = {}
    for ledger in ledgers:
        for recorded in ledger.events(job):
            name = recorded.event.job
            records.setdefault(name, JobRecord(name)).apply(recorded.event)
    return records


def find_orphans(
    provider: Provider,
    owner: str,
    records: Mapping[str, JobRecord],
    now: datetime,
    grace_s: float,
    abandoned: Collection[str] = frozenset(),
) -> tuple[Orphan, ...]:
    """Things with the owner's tag, older than the grace time, that no ledger answers for.

    A node is answered for while the ledger says that it lives, or that its launch may still be
    under way, unless its job is among the ``abandoned`` ones, which no process controls. A leftover
    that serves a job is, as long as the job is not over. Raises ProviderError.
    """
    oldest = now - timedelta(seconds=grace_s)
    found: list[Orphan] = []
    for node in provider.nodes(owner):
        why = orphan_reason(node, records)
        if not why and node.job in abandoned:
            why = f"no process controls job {node.job!r}"
        if node.state.is_alive and node.launched_at <= oldest and why:
            found.append(Orphan(node, why))
    if Capability.ORPHANED_RESOURCES in provider.capabilities():
        for leftover in provider.orphaned_resources(owner):
            why = _why_left(leftover, records)
            old = leftover.created_at is None or leftover.created_at <= oldest
            if old and why:
                found.append(Orphan(leftover, why))
    return tuple(found)


def release_orphan(provider: Provider, orphan: Orphan) -> None:
    """Give it back. Raises ProviderError."""
    if isinstance(orphan.thing, Node):
        provider.terminate(orphan.thing.node_id)
    else:
        provider.delete_resource(orphan.thing)


def orphan_reason(node: Node, records: Mapping[str, JobRecord]) -> str:
    """Why nobody answers for a node; empty where the ledger does."""
    record = records.get(node.job)
    if record is None:
        return f"the ledger knows of no job {node.job!r}"
    if node.node_id in record.live or node.key in record.intents:
        return ""
    if node.node_id in record.known:
        return "it runs, and by the ledger it has ended"
    return f"the ledger of job {node.job!r} does not hold it"


def _why_left(leftover: OrphanedResource, records: Mapping[str, JobRecord]) -> str:
    record = records.get(leftover.job)
    if not leftover.serves_job:
        return "no node uses it"
    if record is None:
        return f"the ledger knows of no job {leftover.job!r}"
    if record.over:
        return f"job {leftover.job!r} is over"
    return ""
