"""Finds the newest step of a sharded state that the near tiers of all nodes hold."""

from __future__ import annotations

from costopt.checkpoint.manifest import CheckpointName, Manifest
from costopt.checkpoint.replicas.agent_socket import ReplicaClient
from costopt.checkpoint.replicas.manager import AvailableSnapshot
from costopt.checkpoint.replicas.snapshot import mismatch_reason
from costopt.checkpoint.repository import CheckpointRepository, Head
from costopt.checkpoint.sharded.index import ShardIndex
from costopt.checkpoint.sharded.snapshot import (
    NearRanges,
    NearSave,
    complete_saves,
    near_manifest,
    read_near_indexes,
)
from costopt.checkpoint.sharded.source import ShardSource
from costopt.domain.errors import CheckpointError
from costopt.train.sharded_ranks import ShardRanks

Newest = tuple[Head | None, Manifest | None]
"""HEAD, and the manifest of the checkpoint that it names first, if that is valid."""


class ShardReplicas:
    """What the near tiers hold as a restore begins. Its methods are collective, but ``of``.

    Without ``newest``, which is the same on all ranks, they hold nothing. An agent that does not
    answer holds nothing either: then no step is complete on its node.
    """

    def __init__(
        self,
        address: str | None,
        place: CheckpointRepository,
        ranks: ShardRanks,
        node: ShardRanks,
        newest: Newest | None,
    ) -> None:
        self._place, self._ranks, self._node = place, ranks, node
        self._client = ReplicaClient(address or "")
        self._offers: list[AvailableSnapshot] = []
        self._is_used = newest is not None
        self._head, self._newest = newest or (None, None)
        if self._is_used:
            self._offers = node.on_first(self._read_offers)

    def saves(self) -> list[NearSave]:
        """Return the steps that may be resumed and that every node can read, the newest first."""
        if not self._is_used:
            return []
        found = complete_saves(
            offer
            for offer in self._offers
            if mismatch_reason(offer.snapshot, self._head, self._newest) is None
        )
        common = set.intersection(*map(set, self._ranks.gather([save.key for save in found])))
        return [save for save in found if save.key in common]

    def open(self, save: NearSave) -> ShardSource:
        """Return the step to read from. Raise ValueError if it is damaged, or not of one save."""
        data = self._ranks.together(
            lambda: self._node.on_first(lambda: read_near_indexes(self._client, save))
        )
        indexes = [ShardIndex.decode(each) for each in data]
        manifest, name = near_manifest(save, indexes), None
        if self._newest is not None and save.offers[0][0].snapshot.matches(self._newest):
            manifest, name = self._newest, CheckpointName.parse(self._newest.name)
        near = NearRanges(self._client, dict(enumerate(save.offers)))
        return ShardSource(self._place, name, manifest, indexes, near)

    def of(self, manifest: Manifest) -> NearRanges | None:
        """Return what this node's tiers hold of a checkpoint in the store; None if nothing."""
        offers: dict[int, list[AvailableSnapshot]] = {}
        for offer in sorted(self._offers, key=lambda each: each.tier.distance):
            rank = offer.snapshot.rank
            if rank is not None and offer.snapshot.matches(manifest):
                offers.setdefault(rank, []).append(offer)
        return NearRanges(self._client, offers) if offers else None

    def _read_offers(self) -> list[AvailableSnapshot]:
        try:
            return [each for each in self._client.available() if each.snapshot.rank is not None]
        except CheckpointError:
            return []
