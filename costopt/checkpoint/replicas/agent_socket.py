"""The Unix socket by which a node's trainers store snapshots with their agent and restore them.

``SnapshotSocketServer`` is the agent's end. Its name is abstract (unix(7)): it disappears with the
process, however that ends. Processes of another user are rejected. ``ReplicaClient`` is the end of
a trainer and its checkpoint writer; ``ReplicaWriter`` stores a snapshot in the near tiers beside
the writer's commit to the store.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.lineage import read_head
from costopt.checkpoint.manifest import Manifest, Part
from costopt.checkpoint.replicas.local import DiskTier, MemorySnapshot
from costopt.checkpoint.replicas.manager import AvailableSnapshot, ReplicaManager
from costopt.checkpoint.replicas.peer import ConnectionServer
from costopt.checkpoint.replicas.snapshot import Replica, Snapshot, Tier
from costopt.checkpoint.replicas.wire import receive_frame, receive_frame_and_descriptor, send_frame
from costopt.checkpoint.writer_client import SharedMemory, peer_pid
from costopt.domain.errors import CheckpointError, CostoptError

IO_TIMEOUT_S = 30.0


class SnapshotSocketServer:
    """Serves in threads from its creation until ``close``; ``address`` begins with "@"."""

    def __init__(self, tiers: ReplicaManager) -> None:
        self.address = f"@costopt-{uuid.uuid4().hex}"
        self._tiers = tiers
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(socket_name(self.address))
        listener.listen()
        self._acceptor = ConnectionServer(listener, self._handle, name="desk", stall_s=IO_TIMEOUT_S)

    def close(self) -> None:
        """Accept no more connections."""
        self._acceptor.close()

    def _handle(self, link: socket.socket) -> None:
        if peer_pid(link) is None:
            return
        request, descriptor = receive_frame_and_descriptor(link)
        match request["op"]:
            case "keep":
                self._keep(link, request, descriptor)
            case "offers":
                offers = [
                    {"tier": each.tier, "node": each.node, "snapshot": each.snapshot.encode()}
                    for each in self._tiers.available()
                ]
                send_frame(link, {"offers": offers})
            case "fetch":
                self._fetch(link, request)
            case other:
                raise ValueError(f"nothing answers {other!r}")

    def _keep(self, link: socket.socket, request: dict[str, Any], descriptor: int | None) -> None:
        if descriptor is None:
            raise ValueError("a snapshot without its memory")
        arena = SharedMemory(descriptor, request["arena_bytes"], writable=False)
        # The client may be gone before every tier has stored it.
        heard = True
        for kept in self._tiers.store(MemorySnapshot(Snapshot.decode(request["snapshot"]), arena)):
            if heard:
                try:
                    send_frame(link, {"kept": asdict(kept)})
                except OSError:
                    heard = False
        if heard:
            send_frame(link, {"done": True})

    def _fetch(self, link: socket.socket, request: dict[str, Any]) -> None:
        offer = AvailableSnapshot(
            Tier(request["tier"]), Snapshot.decode(request["snapshot"]), request["node"]
        )
        if offer.tier is Tier.DISK and self._tiers.disk is not None:
            send_frame(link, {"folder": str(self._tiers.disk.folder)})
            return
        ranges = request.get("ranges")
        if offer.tier is Tier.PEER and ranges is not None:
            arena = self._tiers.fetch_ranges(offer, ranges)
        else:
            arena = self._tiers.fetch(offer).arena
        send_frame(link, {"arena_bytes": arena.size_bytes}, arena.descriptor)


def socket_name(address: str) -> str:
    """Return the socket's name for the kernel. Raise ValueError for another kind of address."""
    if not address.startswith("@"):
        raise ValueError(f"{address!r} is not the address of an agent's socket")
    return "\0" + address[1:]


REPLY_TIMEOUT_S = 120.0
MAX_READ_BYTES = 1 << 30
"""Linux reads no more than 2 GiB at a time."""
Read = Callable[[Part], bytes]
"""Returns the verified bytes of a part. Raises ValueError if they are damaged."""


class ReplicaClient:
    """Every method raises CheckpointError if the agent does not answer, or refuses."""

    def __init__(self, address: str) -> None:
        self.address = address

    def store(self, held: MemorySnapshot) -> Iterator[Replica]:
        """Yield each tier as it stores the snapshot, or the reason why it did not.

        The arena must not change until the iterator ends.
        """
        request = {
            "op": "keep",
            "snapshot": held.snapshot.encode(),
            "arena_bytes": held.arena.size_bytes,
        }
        with self._asked(request, held.arena.descriptor) as link:
            while True:
                response = _check_response(receive_frame(link))
                if "done" in response:
                    return
                fields = response["kept"]
                yield Replica(**{**fields, "tier": Tier(fields["tier"])})

    def available(self) -> tuple[AvailableSnapshot, ...]:
        """Return the available snapshots."""
        with self._asked({"op": "offers"}) as link:
            offers = _check_response(receive_frame(link))["offers"]
            return tuple(
                AvailableSnapshot(
                    Tier(each["tier"]), Snapshot.decode(each["snapshot"]), each["node"]
                )
                for each in offers
            )

    def open(self, offer: AvailableSnapshot) -> Read:
        """Have the snapshot's bytes transferred to this node; return a reader of its parts."""
        request = {
            "op": "fetch",
            "tier": offer.tier,
            "node": offer.node,
            "snapshot": offer.snapshot.encode(),
        }
        with self._asked(request) as link:
            fields, descriptor = receive_frame_and_descriptor(link)
            response = _check_response(fields)
        if descriptor is None:
            disk = DiskTier(Path(response["folder"]), 0)
            return lambda part: disk.read(offer.snapshot, part)
        return _reader(
            MemorySnapshot(
                offer.snapshot, SharedMemory(descriptor, response["arena_bytes"], writable=False)
            )
        )

    def read(self, offer: AvailableSnapshot, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return ranges of a snapshot's bytes, not verified; those of a peer alone are sent."""
        request = {
            "op": "fetch",
            "tier": offer.tier,
            "node": offer.node,
            "snapshot": offer.snapshot.encode(),
            "ranges": ranges,
        }
        with self._asked(request) as link:
            fields, descriptor = receive_frame_and_descriptor(link)
            response = _check_response(fields)
            if descriptor is None:
                disk = DiskTier(Path(response["folder"]), 0)
                return [disk.read_range(offer.snapshot, *each) for each in ranges]
            try:
                begins = [begin for begin, _ in ranges]
                if offer.tier is Tier.PEER:
                    begins = list(accumulate((end - begin for begin, end in ranges), initial=0))
                return [
                    _bytes(descriptor, first, end - begin)
                    for first, (begin, end) in zip(begins, ranges, strict=False)
                ]
            finally:
                os.close(descriptor)

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


def _check_response(fields: dict[str, Any]) -> dict[str, Any]:
    if "refused" in fields:
        raise ValueError(str(fields["refused"]))
    return fields


def _reader(held: MemorySnapshot) -> Read:
    begins = {part.name: begin for part, begin in held.snapshot.extents()}

    def read(part: Part) -> bytes:
        # Copied first: verified bytes must not change afterwards. Reading costs less than mapping.
        data = _bytes(held.arena.descriptor, begins[part.name], part.size_bytes)
        part.check(memoryview(data))
        return data

    return read


def _bytes(descriptor: int, begin: int, size_bytes: int) -> bytes:
    """Bytes that are missing at the end are found by the caller's verification."""
    pieces = []
    while size_bytes > 0 and (
        piece := os.pread(descriptor, min(size_bytes, MAX_READ_BYTES), begin)
    ):
        pieces.append(piece)
        begin, size_bytes = begin + len(piece), size_bytes - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


OBJECTS = "objects.pt"

Notify = Callable[[dict[str, Any]], None]


class ReplicaWriter:
    """Writes one snapshot, which ``take`` returns, to the near tiers, in a thread.

    The near tiers come first, and the store does not wait for them. ``notify`` is called for each
    tier, with a dictionary of ``Replica``.
    """

    def __init__(
        self, client: ReplicaClient, take: Callable[[], MemorySnapshot], notify: Notify
    ) -> None:
        self._client, self._take, self._notify = client, take, notify
        self._thread = threading.Thread(target=self._run, name="near")
        self._thread.start()

    def join(self) -> None:
        """Wait until the arena may change again."""
        self._thread.join()

    def _run(self) -> None:
        try:
            for kept in self._client.store(self._take()):
                self._notify(asdict(kept))
        except CostoptError as error:
            self._notify(asdict(Replica(Tier.MEMORY, complaint=error.message)))


def whole_snapshot(
    committer: Committer,
    saving: SaveRequest,
    arena: SharedMemory,
    parent: str | None,
    generation: int,
) -> MemorySnapshot:
    """Return the snapshot of a state that one process saves; in its arena objects come last."""
    names = sorted(saving.files, key=lambda name: (name == OBJECTS, name))
    parts = tuple(Part.of(name, saving.files[name]) for name in names)
    manifest = snapshot_manifest(committer, saving, parts, parent, generation)
    return MemorySnapshot(Snapshot(committer.writer, manifest), arena)


def snapshot_manifest(
    committer: Committer,
    saving: SaveRequest,
    parts: tuple[Part, ...],
    parent: str | None,
    generation: int,
) -> Manifest:
    """Return the manifest of a snapshot; ``parent`` and ``generation`` are as the save began."""
    return Manifest(
        step=saving.step,
        generation=generation,
        world_size=saving.world_size,
        parts=parts,
        at=time.time() - (time.monotonic() - saving.began_at),
        save_s=0.0,
        parent=parent or _newest(committer),
        origin=committer.origin,
        labels=saving.labels,
        identity=committer.place.identity,
    )


def _newest(committer: Committer) -> str | None:
    """A first save continues from the newest checkpoint at that time."""
    try:
        head = read_head(committer.place)
    except CheckpointError:
        return None
    return head.line[0] if head is not None and head.line else None
