"""A rank's part of a sharded state in the near tiers: its bytes, and behind them its index.

The index is as in the store. The snapshot's own digests, of whole files, only tell a peer that all
has arrived, so that a list of snapshots stays small; those of the index verify each range.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.manifest import Manifest, Part, ShardSet, compute_digest
from costopt.checkpoint.replicas.agent_socket import ReplicaClient, snapshot_manifest
from costopt.checkpoint.replicas.local import MemorySnapshot
from costopt.checkpoint.replicas.manager import AvailableSnapshot
from costopt.checkpoint.replicas.snapshot import Snapshot, Tier
from costopt.checkpoint.sharded.commit import INDEX, OBJECTS, ShardCommitter
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES, ShardIndex
from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError

LAYOUT = "layout"


def shard_snapshot(
    committer: Committer,
    saving: SaveRequest,
    arena: SharedMemory,
    parent: str | None,
    generation: int,
) -> MemorySnapshot:
    """Return the snapshot of this rank's part, with its index written behind it in the arena.

    Raise CheckpointError if there is no memory for the index.
    """
    assert isinstance(committer, ShardCommitter)
    rank, prefix = committer.gang.rank, committer.gang.prefix(committer.gang.rank)
    files = {prefix + name: data for name, data in sorted(saving.files.items())}
    parts = tuple(Part.of(name, data, SHARD_CHUNK_BYTES) for name, data in files.items())
    index = committer.index(saving, parts, None).encode()
    objects = files.pop(prefix + OBJECTS)
    ordered = {**files, LAYOUT: memoryview(saving.layout), OBJECTS: objects}
    end = sum(len(data) for data in ordered.values())
    try:
        written = os.pwrite(arena.descriptor, index, end)
    except OSError as error:
        raise CheckpointError(f"no memory for the index of a snapshot: {error.strerror}") from error
    if written < len(index):
        raise CheckpointError("no memory for the index of a snapshot")
    ordered[INDEX] = memoryview(index)
    whole = tuple(Part.of(name, data, max(1, len(data))) for name, data in ordered.items())
    manifest = snapshot_manifest(committer, saving, whole, parent, generation)
    size = max(arena.size_bytes, end + len(index))
    return MemorySnapshot(
        Snapshot(committer.writer, manifest, rank),
        SharedMemory(os.dup(arena.descriptor), size, writable=False),
    )


@dataclass(frozen=True, slots=True)
class NearSave:
    """A step of which this node can read every rank's snapshot. ``digests`` are of their indexes.

    ``offers`` are, by rank, where they are: the nearest first.
    """

    writer: str
    step: int
    digests: tuple[str, ...]
    offers: tuple[tuple[AvailableSnapshot, ...], ...]

    def __str__(self) -> str:
        """Return a name for people."""
        return f"step {self.step} in the near tiers"

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        """Return what is the same on all nodes that can read it."""
        return self.writer, self.step, self.digests


def complete_saves(offers: Iterable[AvailableSnapshot]) -> list[NearSave]:
    """Return the steps of which every rank's snapshot is among the offers, the newest first."""
    found: dict[tuple[str, int, int], dict[int, list[AvailableSnapshot]]] = defaultdict(dict)
    for offer in sorted(offers, key=lambda each: each.tier.distance):
        snapshot, manifest = offer.snapshot, offer.snapshot.manifest
        if snapshot.rank is not None:
            ranks = found[snapshot.writer, manifest.step, manifest.world_size]
            ranks.setdefault(snapshot.rank, []).append(offer)
    saves = []
    for (writer, step, world_size), ranks in found.items():
        if ranks.keys() == set(range(world_size)):
            # A step taken twice is not mixed: only what the newest of each rank is counts.
            newest = [
                max((o.snapshot for o in ranks[r]), key=lambda s: s.age) for r in sorted(ranks)
            ]
            same = tuple(
                tuple(offer for offer in ranks[rank] if offer.snapshot == newest[rank])
                for rank in sorted(ranks)
            )
            digests = tuple(snapshot.manifest.parts[-1].digests[0] for snapshot in newest)
            saves.append(NearSave(writer, step, digests, same))
    return sorted(saves, key=lambda save: save.step, reverse=True)


def read_near_indexes(client: ReplicaClient, save: NearSave) -> list[bytes]:
    """Return the verified indexes of all ranks. Raise ValueError if one is damaged or gone."""
    return [_read_index(client, offers) for offers in save.offers]


def _read_index(client: ReplicaClient, offers: Sequence[AvailableSnapshot]) -> bytes:
    why = "it is gone"
    for offer in offers:
        snapshot = offer.snapshot
        *_, (part, begin) = snapshot.extents()
        try:
            (data,) = client.read(offer, [(begin, begin + part.size_bytes)])
            part.check(memoryview(data))
        except (CheckpointError, ValueError) as error:
            why = error.message if isinstance(error, CheckpointError) else str(error)
        else:
            return data
    raise ValueError(f"{offers[0].snapshot.title}: {why}")


def near_manifest(save: NearSave, indexes: Sequence[ShardIndex]) -> Manifest:
    """Return the manifest that the ranks' snapshots make, without a name.

    Raise ValueError if they do not tile every tensor, or are not of one save.
    """
    from costopt.checkpoint.sharded.tiling import all_tensors, incomplete_reason

    for rank, index in enumerate(indexes):
        own = index.identity
        if (own.step, own.gang, own.rank) != (save.step, save.writer, rank):
            raise ValueError(f"rank {rank}: its index is of another save")
    streams = [sum(part.size_bytes for part in index.tensors) for index in indexes]
    reason = incomplete_reason([index.layout_data for index in indexes], streams)
    if reason is not None:
        raise ValueError(reason)
    snapshots = [offers[0].snapshot for offers in save.offers]
    size_bytes = sum(snapshot.size_bytes for snapshot in snapshots)
    first = snapshots[0].manifest
    return Manifest(
        step=save.step,
        generation=first.generation,
        world_size=len(indexes),
        parts=(),
        at=max(snapshot.manifest.at for snapshot in snapshots),
        save_s=0.0,
        parent=first.parent,
        origin=first.origin,
        labels=first.labels,
        identity=first.identity,
        shards=ShardSet((), all_tensors(indexes), (), size_bytes, size_bytes),
    )


class NearRanges:
    """Reads ranges of ranks' tensors from the nearest tier that holds their snapshots."""

    def __init__(
        self, client: ReplicaClient, offers: Mapping[int, Sequence[AvailableSnapshot]]
    ) -> None:
        self.used: set[Tier] = set()
        self.offers = {rank: list(each) for rank, each in offers.items() if each}
        self._client = client

    def read(self, rank: int, wanted: Sequence[tuple[int, int, str, str]]) -> Mapping[int, bytes]:
        """Return the chunks of a rank, by their numbers, that a tier holds undamaged.

        Of each: where it begins and ends among the rank's tensors, the algorithm and its digest.
        """
        found: dict[int, bytes] = {}
        for offer in self.offers.get(rank, ()):
            missing = [number for number in range(len(wanted)) if number not in found]
            if not missing:
                break
            try:
                data = self._client.read(offer, [wanted[number][:2] for number in missing])
            except CheckpointError:
                continue
            for number, piece in zip(missing, data, strict=False):
                *_, algorithm, digest = wanted[number]
                if compute_digest(algorithm, memoryview(piece)) == digest:
                    found[number] = piece
                    self.used.add(offer.tier)
        return found

    def objects(self, rank: int, part: Part) -> bytes | None:
        """Return the verified objects of a rank, None if no tier holds them undamaged."""
        for offer in self.offers.get(rank, ()):
            extents = {each.name: (begin, begin + each.size_bytes)
                       for each, begin in offer.snapshot.extents()}  # fmt: skip
            try:
                (data,) = self._client.read(offer, [extents[OBJECTS]])
                part.check(memoryview(data))
            except (CheckpointError, ValueError, KeyError):
                continue
            return data
        return None
