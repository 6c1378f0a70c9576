"""Trainers that die: what is restored, from which tier, and that nothing older is."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from costopt.checkpoint.history import CheckpointHistory
from costopt.checkpoint.replicas.agent_socket import SnapshotSocketServer
from costopt.checkpoint.replicas.local import DiskTier, MemoryTier
from costopt.checkpoint.replicas.manager import ReplicaGroup, ReplicaManager
from costopt.checkpoint.replicas.peer import PeerClient, PeerServer
from costopt.checkpoint.replicas.snapshot import Tier
from costopt.checkpoint.replicas.wire import GangKey
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import SavedCheckpoint
from costopt.train.checkpointer import Checkpointer, RestoredCheckpoint
from tests.support import forked_commands
from tests.support.forked_commands import TRAINERS
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import ROOT, variables
from tests.support.snapshot_fixtures import be_patient_with_peers

KEY = GangKey("j", 1, "secret")
SMALL, LARGE = 64, 300_000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")

TRAINER = """
import os, resource, signal, sys, torch
from costopt.checkpoint.manifest import CheckpointName
from costopt.train.checkpointer import Checkpointer
checkpointer = Checkpointer(sys.argv[1], near=sys.argv[2])
checkpointer.save(1, {"weights": torch.full((64,), 1.0)})
# From here on no file of the store can hold a state; the near tiers are others' files and memory.
resource.prlimit(checkpointer.writer_pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
for step in range(2, int(sys.argv[3]) + 1):
    checkpointer.begin(step, {"weights": torch.full((300_000,), float(step))})
    assert "file size limit" in str(checkpointer.wait()[0].error)
torn = checkpointer._queue._arenas[checkpointer._queue._free_slot()]
torn.map[:1000] = bytes(1000)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient_with_peers(monkeypatch)


class Nodes:
    """The near tiers of a node, and of another one that is its peer."""

    def __init__(self, folder: Path) -> None:
        self.uri = folder / "store"
        self.peer = MemoryTier(1 << 30)
        self.server = PeerServer(self.peer)
        self.server.key = KEY
        peers = (PeerClient("n2", self.server.address, "b"),)
        circle = ReplicaGroup(KEY, peers, peers)
        disk = DiskTier(folder / "disk", 1 << 30)
        self.tiers = ReplicaManager(MemoryTier(1 << 30), disk, circle)
        self.desk = SnapshotSocketServer(self.tiers)

    def close(self) -> None:
        self.desk.close()
        self.server.close()

    def train(self, steps: int = 3) -> None:
        """Save step 1 in the store and the others only near, and be killed in the next copy."""
        ended = forked_commands.run(
            ["-c", TRAINER, str(self.uri), self.desk.address, str(steps)],
            ROOT,
            variables(),
            PATIENCE_S,
            TRAINERS,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr

    def restored(self) -> tuple[RestoredCheckpoint, Checkpointer]:
        checkpointer = Checkpointer(self.uri, near=self.desk.address)
        restored = checkpointer.restore()
        assert restored is not None
        weights = restored.state["weights"]
        assert torch.equal(weights, torch.full_like(weights, restored.manifest.step))
        return restored, checkpointer


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.close()


def test_each_tier_takes_over_from_the_nearer_one(nodes: Nodes) -> None:
    nodes.train()
    restored, checkpointer = nodes.restored()
    assert (restored.tier, restored.manifest.step) == (Tier.MEMORY, 3)
    assert (restored.durable, restored.durable_step) == (False, 1)
    assert checkpointer.refused == ()

    damage(nodes.tiers.memory)
    restored, checkpointer = nodes.restored()
    assert (restored.tier, restored.manifest.step) == (Tier.DISK, 3)
    assert "damaged" in checkpointer.refused[0].message
    assert checkpointer.refused[0].uri == "the memory of this node"

    assert nodes.tiers.disk is not None
    nodes.tiers.disk.clear()
    restored, checkpointer = nodes.restored()
    assert (restored.tier, restored.node, restored.manifest.step) == (Tier.PEER, "n2", 3)
    assert restored.describe_source == "the memory of n2"

    damage(nodes.peer)
    restored, checkpointer = nodes.restored()
    assert (restored.tier, restored.manifest.step, restored.durable) == (Tier.STORE, 1, True)
    assert len(checkpointer.refused) == 2


def damage(memory: MemoryTier) -> None:
    """Flip a bit: through the descriptor, since a node maps its trainers' memory for reading."""
    for held in memory.newest():
        byte = os.pread(held.arena.descriptor, 1, 5000)[0]
        os.pwrite(held.arena.descriptor, bytes([byte ^ 1]), 5000)


def test_training_goes_on_from_there_in_the_store(nodes: Nodes) -> None:
    nodes.train(steps=2)
    restored, checkpointer = nodes.restored()
    assert restored.manifest.step == 2
    checkpointer.save(3, {"weights": torch.full((SMALL,), 3.0)})
    newest, older = CheckpointHistory.open(str(nodes.uri)).list()[:2]
    assert newest.is_newest
    assert newest.manifest is not None
    assert (newest.manifest.step, newest.manifest.parent) == (3, older.name)
    assert older.in_line
    restored, _ = nodes.restored()
    assert (restored.manifest.step, restored.tier, restored.durable) == (3, Tier.MEMORY, True)


def test_what_another_has_saved_since_is_not_undone(nodes: Nodes) -> None:
    nodes.train()
    alone = Checkpointer(nodes.uri)
    alone.restore()
    alone.save(2, {"weights": torch.full((SMALL,), 2.0)})
    restored, _ = nodes.restored()
    assert (restored.tier, restored.manifest.step) == (Tier.STORE, 2)


def test_a_rollback_leaves_snapshots_behind(nodes: Nodes) -> None:
    nodes.train()
    history = CheckpointHistory.open(str(nodes.uri))
    history.rollback(history.list()[-1].name)
    restored, _ = nodes.restored()
    assert (restored.tier, restored.manifest.step) == (Tier.STORE, 1)


def test_without_an_agent_that_answers_it_is_the_store(nodes: Nodes) -> None:
    nodes.train()
    nodes.desk.close()
    restored, checkpointer = nodes.restored()
    assert (restored.tier, restored.manifest.step) == (Tier.STORE, 1)
    assert "near tiers of this node" in checkpointer.refused[0].message
    saved = checkpointer.save(2, {"weights": torch.full((SMALL,), 2.0)})
    assert saved.units == 2.0
    assert "near tiers" in checkpointer.pop_replicas()[0].complaint


def test_on_a_notice_a_peer_is_enough(nodes: Nodes) -> None:
    checkpointer = Checkpointer(nodes.uri, near=nodes.desk.address)
    state = {"weights": torch.full((LARGE,), 1.0)}
    checkpointer.claim()
    resource.prlimit(checkpointer.writer_pid or 0, resource.RLIMIT_FSIZE, (9999, 9999))
    for _ in range(2):
        assert str(checkpointer.save_for_notice(1, state)) == "the memory of n2 (b)"
    nodes.tiers.circle = None
    with pytest.raises(CheckpointError, match="file size limit"):
        checkpointer.save_for_notice(1, state)
    checkpointer.close()


def test_without_a_peer_the_store_is_waited_for(nodes: Nodes) -> None:
    nodes.tiers.circle = None
    checkpointer = Checkpointer(nodes.uri, near=nodes.desk.address)
    saved = checkpointer.save_for_notice(1, {"weights": torch.full((LARGE,), 1.0)})
    assert isinstance(saved, SavedCheckpoint)
    assert saved.name == nodes.restored()[0].name


def test_who_takes_over_says_what_its_snapshot_goes_on_from(nodes: Nodes) -> None:
    saved = Checkpointer(nodes.uri, near=nodes.desk.address).save(1, {"weights": torch.ones(SMALL)})
    second = Checkpointer(nodes.uri, generation=2, near=nodes.desk.address)
    second.claim()
    resource.prlimit(second.writer_pid or 0, resource.RLIMIT_FSIZE, (9999, 9999))
    with pytest.raises(CheckpointError, match="file size limit"):
        second.save(2, {"weights": torch.full((LARGE,), 2.0)})
    (held,) = nodes.tiers.memory.newest()
    assert held.snapshot.manifest.parent == saved.name
    assert nodes.restored()[0].manifest.step == 2
