"""Kills of ranks that save sharded, of their coordinator and of the store, at any moment.

Each rank is a process that stores its part near, then commits it. Whatever is killed, what the
store and the near tiers hold afterwards is of one step, and no step that was reported is lost.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from costopt.checkpoint.history import CheckpointHistory
from costopt.checkpoint.manifest import CheckpointName
from costopt.checkpoint.replicas.agent_socket import ReplicaClient
from costopt.checkpoint.replicas.snapshot import mismatch_reason
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.index import ShardIndex
from costopt.checkpoint.sharded.snapshot import (
    NearRanges,
    complete_saves,
    near_manifest,
    read_near_indexes,
    shard_snapshot,
)
from costopt.checkpoint.sharded.source import ShardSource
from costopt.checkpoint.sharded.tensor_stream import open_source, stream_tensors
from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError
from costopt.store.folder import FileStore
from tests.support.failing_store import Failing
from tests.support.near_nodes import NearNodes
from tests.support.shard_gang import ShardGang, whole

KILLS = int(os.environ.get("COSTOPT_SHARDED_KILLS", "12"))
RANKS = 3
KILLED = ("rank", "coordinator", "store", "all", "two")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")


class Gang:
    """The processes of one generation; ``reported-N`` is what they heard is committed."""

    def __init__(self, folder: Path, generation: int, first: int, near: NearNodes) -> None:
        self.folder, self.first, self.addresses = folder, first, near.addresses
        self.fails_from = folder / "store-is-gone"
        self.fails_from.unlink(missing_ok=True)
        for rank in range(RANKS):
            (folder / f"reported-{rank}").write_text("0")
            (folder / f"ended-{rank}").unlink(missing_ok=True)
        self.made = ShardGang(self.place, RANKS, generation, timeout_s=1.0, takeover_s=0.1, keep=2)
        self.pids = [self._fork(rank) for rank in range(RANKS)]

    def place(self) -> CheckpointRepository:
        root = self.folder / "store"
        gone = self.fails_from
        store = Failing(root, lambda *_: "before" if gone.exists() else None)
        return CheckpointRepository(store, str(root))

    def _fork(self, rank: int) -> int:
        child = os.fork()
        if child:
            return child
        try:
            self._save_until_it_fails(rank)
            (self.folder / f"ended-{rank}").touch()
            signal.pause()
        finally:
            os._exit(1)

    def _save_until_it_fails(self, rank: int) -> None:
        committer, client = self.made.committers[rank], ReplicaClient(self.addresses[rank])
        arenas = [SharedMemory.create(1 << 20) for _ in range(3)]
        for step in range(self.first + 1, self.first + 10_000):
            saving = self.made.request(rank, step)
            arena = arenas[step % 3]
            end = 0
            for data in (
                saving.files["tensors-00000.bin"], saving.layout, saving.files["objects.pt"]
            ):  # fmt: skip
                arena.map[end : end + len(data)] = bytes(data)
                end += len(data)
            taken = shard_snapshot(committer, saving, arena, committer.parent, self.made.generation)
            assert not [kept for kept in client.store(taken) if kept.complaint]
            try:
                committer.commit(saving)
            except CheckpointError:
                return
            (self.folder / f"reported-{rank}").write_text(str(step))

    def kill(self, what: str, draw: random.Random) -> None:
        """Kill it, let what is left of the gang come to an end, and end that.

        On a busy machine the first save may take longer than ranks wait for each other.
        """
        until(lambda: self.reported() > self.first or self.have_ended(range(RANKS)))
        time.sleep(draw.uniform(0.0, 0.05))
        victims = {
            "rank": [draw.randrange(1, RANKS)],
            "coordinator": [0],
            "store": [],
            "all": range(RANKS),
            "two": draw.sample(range(RANKS), 2),
        }[what]
        if what == "store":
            self.fails_from.touch()
        for rank in victims:
            os.kill(self.pids[rank], signal.SIGKILL)
        left = [rank for rank in range(RANKS) if rank not in victims]
        until(lambda: self.have_ended(left))
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def have_ended(self, ranks: Iterable[int]) -> bool:
        """Whether these save no more."""
        return all((self.folder / f"ended-{rank}").exists() for rank in ranks)

    def reported(self) -> int:
        """The newest step that was reported to any rank as committed."""
        texts = [(self.folder / f"reported-{rank}").read_text() for rank in range(RANKS)]
        return max(int(text or "0") for text in texts)


def until(done) -> None:  # type: ignore[no-untyped-def]
    for _ in range(100_000):
        if done():
            return
        time.sleep(0.002)
    raise AssertionError("still not so after 200 s")


def stored_step(folder: Path) -> int:
    """The newest step in the store, every checkpoint there verified and of its own step."""
    place = CheckpointRepository(FileStore(folder), str(folder))
    head = place.head()
    assert head is not None
    history = CheckpointHistory.open(str(folder))
    for name in head.line:
        assert history.verify(name) is None
        parsed = CheckpointName.parse(name)
        assert parsed is not None
        assert state_of(open_source(place, parsed)) == whole(parsed.step)
    newest = CheckpointName.parse(head.line[0])
    assert newest is not None
    return newest.step


def near_step(folder: Path, address: str) -> int:
    """The newest step that the near tiers hold of all ranks and that may be resumed."""
    place = CheckpointRepository(FileStore(folder), str(folder))
    head, client = place.head(), ReplicaClient(address)
    assert head is not None
    name = CheckpointName.parse(head.line[0])
    assert name is not None
    newest = place.manifest(name)
    offers = [o for o in client.available() if mismatch_reason(o.snapshot, head, newest) is None]
    for save in complete_saves(offers):
        indexes = [ShardIndex.decode(data) for data in read_near_indexes(client, save)]
        near = NearRanges(client, dict(enumerate(save.offers)))
        source = ShardSource(place, None, near_manifest(save, indexes), indexes, near)
        assert state_of(source) == whole(save.step)
        return save.step
    return 0


def state_of(source: ShardSource) -> bytes:
    return b"".join(slab.data for slab in stream_tensors(source, ["weights"]))


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_no_kill_mixes_steps_or_loses_one(tmp_path: Path) -> None:
    draw = random.Random(21)
    nodes = NearNodes(RANKS, alive=RANKS)
    newest, ahead = 0, 0
    try:
        for generation in range(1, KILLS + 1):
            gang = Gang(tmp_path, generation, newest, nodes)
            gang.kill(KILLED[generation % len(KILLED)], draw)
            if not newest and not gang.reported():
                continue  # there is nothing yet that could be lost
            reported, stored = gang.reported(), stored_step(tmp_path / "store")
            assert stored >= reported, "a save that was reported is not there"
            near = near_step(tmp_path / "store", nodes.addresses[generation % RANKS])
            assert near >= stored, "a step that all ranks took is near no more"
            ahead += near > stored
            newest = near
    finally:
        nodes.close()
    assert newest > KILLS / 2, "most gangs saved nothing"
    assert ahead > 0 or KILLS < 20, "no kill fell between the near tiers and the store"
    assert len(list((tmp_path / "store").glob("step-*"))) <= 5, "what was cut short stays for ever"
