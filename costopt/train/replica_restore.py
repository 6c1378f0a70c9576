"""Restores the newest state from the nearest tier that holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from costopt.checkpoint.lineage import read_newest
from costopt.checkpoint.manifest import CheckpointName, Manifest, Part
from costopt.checkpoint.replicas.agent_socket import ReplicaClient
from costopt.checkpoint.replicas.manager import AvailableSnapshot
from costopt.checkpoint.replicas.snapshot import describe_location, mismatch_reason
from costopt.checkpoint.repository import CheckpointRepository, Head
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import RejectedCheckpoint

ReadState = Callable[[Manifest, Callable[[Part], bytes]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class NearestReplica:
    """A state from a near tier.

    ``manifest.name`` is its checkpoint's in the store, or "" if it is not there; ``durable_step``
    is then the store's newest step, None if the store holds no checkpoint.
    """

    offer: AvailableSnapshot
    manifest: Manifest
    state: dict[str, Any]
    durable_step: int | None


class ReplicaRestore:
    """Searches the near tiers; ``refused`` is what the last search rejected, and why."""

    def __init__(self, client: ReplicaClient, place: CheckpointRepository) -> None:
        self.refused: tuple[RejectedCheckpoint, ...] = ()
        self._client, self._place = client, place

    def state(self, read_state: ReadState) -> NearestReplica | None:
        """Return the newest valid state from the nearest tier that has it.

        Return None if no near tier holds one that the store does not supersede. Raise
        CheckpointError if the store refuses.
        """
        self.refused = ()
        head, newest = read_newest(self._place)
        for offer in self._offers(head, newest):
            try:
                manifest = _named(offer, newest)
                state = read_state(manifest, self._client.open(offer))
            except ValueError as error:
                self._refuse(offer, str(error))
            except CheckpointError as error:
                self._refuse(offer, error.message)
            else:
                return NearestReplica(offer, manifest, state, _step(head))
        return None

    def _offers(self, head: Head | None, newest: Manifest | None) -> list[AvailableSnapshot]:
        """Return the snapshots that may be resumed, the newest first, the nearest first among
        equals.
        """
        try:
            offers = self._client.available()
        except CheckpointError as error:
            self.refused = (RejectedCheckpoint("near tiers", self._client.address, error.message),)
            return []
        allowed = [each for each in offers if mismatch_reason(each.snapshot, head, newest) is None]
        allowed.sort(key=lambda each: each.tier.distance)
        return sorted(allowed, key=lambda each: each.snapshot.age, reverse=True)

    def _refuse(self, offer: AvailableSnapshot, message: str) -> None:
        where = describe_location(offer.tier, offer.node)
        manifest = offer.snapshot.manifest
        name = f"{CheckpointName(manifest.generation, manifest.step, 0)}@{offer.node or offer.tier}"
        self.refused = (*self.refused, RejectedCheckpoint(name, where, message))


def _named(offer: AvailableSnapshot, newest: Manifest | None) -> Manifest:
    snapshot = offer.snapshot
    if newest is not None and snapshot.matches(newest):
        return newest
    return replace(snapshot.manifest, name="")


def _step(head: Head | None) -> int | None:
    name = CheckpointName.parse(head.line[0]) if head is not None and head.line else None
    return None if name is None else name.step
