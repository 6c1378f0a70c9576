"""Snapshots before they are in the object store, the tiers that replicate them, nearest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from costopt.checkpoint.manifest import Manifest, Part, shard_prefix
from costopt.checkpoint.repository import Head


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state copied at a step; ``writer`` is the fencing token of the process that took it, as in
    HEAD.

    The manifest's parts are in the order of their bytes, without gaps. Its ``at`` is when the
    snapshot was taken, its ``parent`` the newest checkpoint in the store by then; it has no name.
    With a ``rank`` it is that rank's part of a sharded state, taken by the gang of ``writer``; its
    last part is the rank's index.
    """

    writer: str
    manifest: Manifest
    rank: int | None = None

    @property
    def age(self) -> tuple[int, float]:
        """Return a key by which newer snapshots are greater."""
        return self.manifest.generation, self.manifest.at

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all parts."""
        return self.manifest.size_bytes

    @property
    def title(self) -> str:
        """Return a description for people."""
        who = "" if self.rank is None else f" of rank {self.rank}"
        number = self.manifest.generation
        return f"the snapshot{who} of step {self.manifest.step} of generation {number}"

    def encode(self) -> dict[str, Any]:
        """Return the snapshot as JSON fields."""
        fields = {"writer": self.writer, "manifest": self.manifest.encode().decode()}
        return fields if self.rank is None else {**fields, "rank": self.rank}

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> Snapshot:
        """Return the inverse of ``encode``. Raise ValueError if a field is malformed."""
        try:
            manifest, rank = Manifest.decode(fields["manifest"].encode()), fields.get("rank")
            return cls(str(fields["writer"]), manifest, None if rank is None else int(rank))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a snapshot: {error!r}") from error

    def extents(self) -> Iterator[tuple[Part, int]]:
        """Yield each part and where its bytes begin."""
        begin = 0
        for part in self.manifest.parts:
            yield part, begin
            begin += part.size_bytes

    def check(self, view: memoryview) -> None:
        """Raise ValueError if a byte differs from what was taken."""
        for part, begin in self.extents():
            part.check(view[begin : begin + part.size_bytes])

    def matches(self, manifest: Manifest) -> bool:
        """Whether a checkpoint in the store holds the same bytes; of a rank, its part of them."""
        if self.rank is not None:
            return self.manifest.step == manifest.step and self.is_of_gang(manifest)
        ours, theirs = ({part.name: part for part in m.parts} for m in (self.manifest, manifest))
        return self.manifest.step == manifest.step and ours == theirs

    def is_of_gang(self, manifest: Manifest) -> bool:
        """Whether the gang that took this rank's snapshot wrote a sharded checkpoint."""
        prefix = shard_prefix(self.rank or 0, self.writer)
        indexes = () if manifest.shards is None else manifest.shards.indexes
        return any(part.name.startswith(prefix) for part in indexes)


def mismatch_reason(snapshot: Snapshot, head: Head | None, newest: Manifest | None) -> str | None:
    """Return why training may not continue from ``snapshot``, or None if it may.

    ``newest`` is the manifest of what HEAD names first. A snapshot counts if the store holds the
    same bytes, or if it continues from there: taken by the writer that holds the repository, or by
    a later generation that had no time to claim it. So nothing older than the store's newest is
    restored, nothing that a rollback abandoned, and nothing of a superseded process. The steps of
    a gang that saves a sharded state only grow: what it took after its newest checkpoint counts.
    """
    if head is None:
        return "the store has no HEAD to compare it with"
    if _is_of_another_job(snapshot, head):
        return "another job took it"
    if newest is not None and snapshot.matches(newest):
        return None
    manifest, holds = snapshot.manifest, snapshot.writer == head.writer
    if snapshot.rank is not None and holds:
        is_older = newest is not None and snapshot.is_of_gang(newest)
        is_older = is_older and newest is not None and manifest.step < newest.step
        return "the store holds a newer checkpoint" if is_older else None
    if not holds and manifest.generation <= head.generation:
        return f"generation {head.generation} has superseded the process that took it"
    if manifest.parent == (head.line[0] if head.line else None):
        return None
    if holds and newest is not None and manifest.at > newest.at - newest.save_s:
        return None
    return "the store holds a newer checkpoint"


def _is_of_another_job(snapshot: Snapshot, head: Head) -> bool:
    ours = snapshot.manifest.identity
    return ours is not None and ours.is_other(head.identity)


class Tier(StrEnum):
    """MEMORY and DISK are this node's, PEER the memory of another. STORE alone is durable."""

    MEMORY = "memory"
    DISK = "disk"
    PEER = "peer"
    STORE = "store"

    @property
    def distance(self) -> int:
        """Return a number that is smaller for nearer tiers."""
        return list(Tier).index(self)


@dataclass(frozen=True, slots=True)
class Replica:
    """A tier that holds a snapshot, on ``node`` in ``zone`` ("" if unknown).

    With ``complaint``, the tier does not hold it, for that reason.
    """

    tier: Tier
    node: str = ""
    zone: str = ""
    complaint: str = ""

    def __str__(self) -> str:
        """Return a description for people."""
        return describe_location(self.tier, self.node) + (f" ({self.zone})" if self.zone else "")


def describe_location(tier: Tier, node: str) -> str:
    """Return the tier, with the node if it is another one's."""
    match tier:
        case Tier.MEMORY:
            return "the memory of this node"
        case Tier.DISK:
            return "the disk of this node"
        case Tier.PEER:
            return f"the memory of {node or 'peers'}"
        case Tier.STORE:
            return "the object store"
