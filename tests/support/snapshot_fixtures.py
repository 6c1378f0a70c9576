"""Snapshots made by hand, and a line between nodes that can be cut."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest

from costopt.checkpoint.manifest import Manifest, Part
from costopt.checkpoint.replicas import peer, wire
from costopt.checkpoint.replicas.local import MemorySnapshot
from costopt.checkpoint.replicas.snapshot import Snapshot
from costopt.checkpoint.writer_client import SharedMemory

MIB = 1 << 20


def held(
    step: int,
    *,
    generation: int = 1,
    size_bytes: int = MIB,
    writer: str = "w",
    parent: str | None = None,
    at: float | None = None,
) -> MemorySnapshot:
    """A snapshot with bytes of its own in a writable arena."""
    data = bytes([step % 251]) * size_bytes
    manifest = Manifest(
        step=step,
        generation=generation,
        world_size=1,
        parts=(Part.of("tensors-00000.bin", memoryview(data)),),
        at=time.time() if at is None else at,
        save_s=0.0,
        parent=parent,
    )
    arena = SharedMemory.create(size_bytes)
    arena.map[:size_bytes] = data
    return MemorySnapshot(Snapshot(writer, manifest), arena)


def be_patient_with_peers(patch: pytest.MonkeyPatch) -> None:
    """One that waits for its turn on a busy machine is not taken to be gone."""
    for module, name in (
        (peer, "CONNECT_S"),
        (peer, "IO_TIMEOUT_S"),
        (peer, "PATIENCE_S"),
        (peer, "IO_TIMEOUT_S"),
        (wire, "HANDSHAKE_TIMEOUT_S"),
    ):
        patch.setattr(module, name, 120.0)


class Line:
    """Passes a TCP connection on to ``address``; after ``upward`` or ``downward`` bytes it breaks,
    or with ``hangs`` it goes silent."""

    def __init__(
        self,
        address: str,
        *,
        upward: int | None = None,
        downward: int | None = None,
        hangs: bool = False,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._limits = (upward, downward)
        self._hangs = hangs
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Break what is left."""
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                ways = ((near, far, self._limits[0]), (far, near, self._limits[1]))
                for way in ways:
                    threading.Thread(target=self._pass, args=way, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, limit: int | None) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if limit is not None and passed + len(data) > limit:
                    target.sendall(data[: limit - passed])
                    if not self._hangs:
                        target.shutdown(socket.SHUT_RDWR)
                        source.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)
                passed += len(data)
            target.shutdown(socket.SHUT_WR)
