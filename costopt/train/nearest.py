"""Restores from the nearest tier that holds the newest state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from costopt.agent.status import RefusedCheckpoint
from costopt.checkpoint.head import Head
from costopt.checkpoint.line import head_now
from costopt.checkpoint.manifest import Manifest
from costopt.checkpoint.name import CheckpointName
from costopt.checkpoint.near.near_client import NearClient
from costopt.checkpoint.near.near_tiers import Offer
from costopt.checkpoint.near.snapshot import refusal
from costopt.checkpoint.near.tier import place_in_words
from costopt.checkpoint.part import Part
from costopt.checkpoint.place import CheckpointPlace
from costopt.domain.errors import CheckpointError

ReadState = Callable[[Manifest, Callable[[Part], bytes]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Nearest:
    """A state from a near tier. ``manifest.name`` is its checkpoint's in the store, or "" while
    it is not there; then ``durable_step`` is how far the store is, None where it holds nothing."""

    offer: Offer
    manifest: Manifest
    state: dict[str, Any]
    durable_step: int | None


class NearestTier:
    """``refused`` is what the last search passed over, and why."""

    def __init__(self, client: NearClient, place: CheckpointPlace) -> None:
        self.refused: tuple[RefusedCheckpoint, ...] = ()
        self._client, self._place = client, place

    def state(self, read_state: ReadState) -> Nearest | None:
        """The newest state that is valid, from the nearest tier that has it; None where no near
        tier holds one that the store does not supersede. Raises CheckpointError: the store."""
        self.refused = ()
        head = head_now(self._place)
        newest = self._newest(head)
        for offer in self._offers(head, newest):
            try:
                manifest = _named(offer, newest)
                state = read_state(manifest, self._client.open(offer))
            except ValueError as error:
                self._refuse(offer, str(error))
            except CheckpointError as error:
                self._refuse(offer, error.message)
            else:
                return Nearest(offer, manifest, state, _step(head))
        return None

    def _offers(self, head: Head | None, newest: Manifest | None) -> list[Offer]:
        """What may be gone on from, the newest first, the nearest first among equals."""
        try:
            offers = self._client.offers()
        except CheckpointError as error:
            self.refused = (RefusedCheckpoint("near tiers", self._client.address, error.message),)
            return []
        allowed = [each for each in offers if refusal(each.snapshot, head, newest) is None]
        allowed.sort(key=lambda each: each.tier.distance)
        return sorted(allowed, key=lambda each: each.snapshot.age, reverse=True)

    def _newest(self, head: Head | None) -> Manifest | None:
        name = CheckpointName.parse(head.line[0]) if head is not None and head.line else None
        try:
            return None if name is None else self._place.manifest(name)
        except ValueError:
            return None

    def _refuse(self, offer: Offer, message: str) -> None:
        where = place_in_words(offer.tier, offer.node)
        manifest = offer.snapshot.manifest
        name = f"{CheckpointName(manifest.generation, manifest.step, 0)}@{offer.node or offer.tier}"
        self.refused = (*self.refused, RefusedCheckpoint(name, where, message))


def _named(offer: Offer, newest: Manifest | None) -> Manifest:
    snapshot = offer.snapshot
    if newest is not None and snapshot.is_that_of(newest):
        return newest
    return replace(snapshot.manifest, name="")


def _step(head: Head | None) -> int | None:
    name = CheckpointName.parse(head.line[0]) if head is not None and head.line else None
    return None if name is None else name.step
