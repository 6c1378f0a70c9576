"""How long a restore takes from each tier.

The peer is a process on the same machine, reached over loopback; disk and store are folders on the
same disk, whose files are dropped from the page cache first. The time holds the look at HEAD and at
all tiers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

RESTORES = 5
KEY = ("j", 1, "secret")
PEER = """
import sys
from costopt.checkpoint.replicas.wire import GangKey
from costopt.checkpoint.replicas.local import MemoryTier
from costopt.checkpoint.replicas.peer import PeerServer
server = PeerServer(MemoryTier(1 << 40))
server.key = GangKey("j", 1, "secret")
print(server.address, flush=True)
sys.stdin.read()
"""

Figure = tuple[str, float, str]


def restores(size_mb: int, state: dict[str, Any], folder: Path) -> Iterator[Figure]:
    """Milliseconds, the median of some; the tiers are emptied one by one."""
    from costopt.checkpoint.replicas.agent_socket import SnapshotSocketServer
    from costopt.checkpoint.replicas.local import DiskTier, MemoryTier
    from costopt.checkpoint.replicas.manager import ReplicaGroup, ReplicaManager
    from costopt.checkpoint.replicas.peer import PeerClient
    from costopt.checkpoint.replicas.wire import GangKey
    from costopt.train import Checkpointer

    with _peer() as address:
        peers = (PeerClient("peer", address),)
        circle = ReplicaGroup(GangKey(*KEY), peers, peers)
        disk = DiskTier(folder / "near", 1 << 40)
        tiers = ReplicaManager(MemoryTier(1 << 40), disk, circle)
        desk = SnapshotSocketServer(tiers)
        checkpointer = Checkpointer(folder / "far", keep=1, near=desk.address)
        checkpointer.save(1, state)
        complaints = [kept.complaint for kept in checkpointer.pop_replicas() if kept.complaint]
        assert not complaints, complaints
        checkpointer.close()
        for empty in (None, tiers.memory.clear, disk.clear, lambda: _part(tiers)):
            if empty is not None:
                empty()
            times = [_restore(folder / "far", desk.address) for _ in range(RESTORES)]
            where = times[0][0]
            yield f"{size_mb} MB, restore from {where}", 1e3 * median(t for _, t in times), "ms"
        desk.close()


def _restore(uri: Path, near: str) -> tuple[str, float]:
    from costopt.train import Checkpointer

    _forget_files(uri.parent)
    checkpointer = Checkpointer(uri, near=near)
    began = time.perf_counter()
    restored = checkpointer.restore()
    took_s = time.perf_counter() - began
    assert restored is not None
    return restored.describe_source, took_s


def _forget_files(folder: Path) -> None:
    """As on a machine that has not read or written them lately."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _part(tiers: Any) -> None:
    tiers.circle = None


@contextmanager
def _peer() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate()
