"""The near tiers as a trainer and its writer reach them, through this node's agent."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from costopt.checkpoint.arena import SharedMemory
from costopt.checkpoint.near.desk import socket_name
from costopt.checkpoint.near.disk import DiskTier
from costopt.checkpoint.near.frame import (
    receive_frame,
    receive_frame_and_descriptor,
    send_frame,
)
from costopt.checkpoint.near.memory import MemorySnapshot
from costopt.checkpoint.near.near_tiers import AvailableSnapshot
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.checkpoint.near.tier import Replica, Tier
from costopt.checkpoint.part import Part
from costopt.domain.errors import CheckpointError

REPLY_TIMEOUT_S = 120.0
MAX_READ_BYTES = 1 << 30
"""Linux reads no more than 2 GiB at a time."""
Read = Callable[[Part], bytes]
"""The verified bytes of a part. Raises ValueError."""


class ReplicaClient:
    """Every method raises CheckpointError where the agent does not answer, or refuses."""

    def __init__(self, address: str) -> None:
        self.address = address

    def store(self, held: MemorySnapshot) -> Iterator[Replica]:
        """Each tier as it holds the snapshot, or does not and why. The arena must stay as it is
        until this ends."""
        request = {
            "op": "keep",
            "snapshot": held.snapshot.encode(),
            "arena_bytes": held.arena.size_bytes,
        }
        with self._asked(request, held.arena.descriptor) as link:
            while True:
                answer = _answer(receive_frame(link))
                if "done" in answer:
                    return
                fields = answer["kept"]
                yield Replica(**{**fields, "tier": Tier(fields["tier"])})

    def available(self) -> tuple[AvailableSnapshot, ...]:
        """What can be had."""
        with self._asked({"op": "offers"}) as link:
            offers = _answer(receive_frame(link))["offers"]
            return tuple(
                AvailableSnapshot(
                    Tier(each["tier"]), Snapshot.decode(each["snapshot"]), each["node"]
                )
                for each in offers
            )

    def open(self, offer: AvailableSnapshot) -> Read:
        """Have its bytes brought to this node."""
        request = {
            "op": "fetch",
            "tier": offer.tier,
            "node": offer.node,
            "snapshot": offer.snapshot.encode(),
        }
        with self._asked(request) as link:
            fields, descriptor = receive_frame_and_descriptor(link)
            answer = _answer(fields)
        if descriptor is None:
            disk = DiskTier(Path(answer["folder"]), 0)
            return lambda part: disk.read(offer.snapshot, part)
        return _reader(
            MemorySnapshot(
                offer.snapshot, SharedMemory(descriptor, answer["arena_bytes"], writable=False)
            )
        )

    @contextmanager
    def _asked(
        self, request: dict[str, Any], descriptor: int | None = None
    ) -> Iterator[socket.socket]:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(REPLY_TIMEOUT_S)
                link.connect(socket_name(self.address))
                send_frame(link, request, descriptor)
                yield link
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise CheckpointError(f"the near tiers of this node: {error}") from error


def _answer(fields: dict[str, Any]) -> dict[str, Any]:
    if "refused" in fields:
        raise ValueError(str(fields["refused"]))
    return fields


def _reader(held: MemorySnapshot) -> Read:
    begins = {part.name: begin for part, begin in held.snapshot.extents()}

    def read(part: Part) -> bytes:
        # A copy first: what is verified must not change any more. Reading costs less than mapping.
        data = _bytes(held.arena.descriptor, begins[part.name], part.size_bytes)
        part.check(memoryview(data))
        return data

    return read


def _bytes(descriptor: int, begin: int, size_bytes: int) -> bytes:
    """What is missing at the end is found by who verifies."""
    pieces = []
    while size_bytes > 0 and (
        piece := os.pread(descriptor, min(size_bytes, MAX_READ_BYTES), begin)
    ):
        pieces.append(piece)
        begin, size_bytes = begin + len(piece), size_bytes - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
