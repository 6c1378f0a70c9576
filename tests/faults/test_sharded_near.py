"""Sharded state near: a step that all ranks took is restored by any mesh, without the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from costopt.checkpoint.manifest import CheckpointName
from costopt.checkpoint.replicas.agent_socket import ReplicaClient
from costopt.checkpoint.replicas.manager import AvailableSnapshot
from costopt.checkpoint.replicas.snapshot import Tier
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.snapshot import NearRanges, complete_saves, shard_snapshot
from costopt.checkpoint.sharded.source import ShardSource
from costopt.checkpoint.sharded.tensor_stream import stream_tensors
from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import SavedCheckpoint
from costopt.store.folder import FileStore
from costopt.train import ShardedCheckpointer
from tests.faults.test_sharded_checkpointer import run
from tests.support.near_nodes import NearNodes
from tests.support.shard_gang import ShardGang, whole

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")


@pytest.mark.slow
@pytest.mark.worker_group("processes")
def test_a_lost_step_comes_from_memory_and_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = NearNodes(4, alive=3)
    monkeypatch.setenv("TEST_NEAR", " ".join(nodes.addresses))
    ranks = run(
        tmp_path,
        "fsdp4,train:2,save,train:1,lost,note",
        "fsdp4,near",
        "fsdp3,near,train:1,save,note",
        "fsdp3,near",
    )
    nodes.close()
    lost, same, other, trained, stored = ranks[0]
    # Of a whole mesh each rank needs but small tensors of others, of another mesh whole shards.
    assert same == f"{lost} 3 memory 0 -"
    assert other == f"{lost} 3 peer 0 -"
    assert stored.startswith(f"{trained} 4 ")
    assert stored.endswith(" 0 step-000000004.0.1")
    assert all(noted[1].endswith(" 0 -") for noted in ranks)


class Saved:
    """Two ranks on two nodes, and the steps that they took near and in the store."""

    def __init__(self, folder: Path) -> None:
        self.nodes = NearNodes(2, alive=2, disk=folder / "disks")
        self.gang = ShardGang(
            lambda: CheckpointRepository(FileStore(folder / "s"), str(folder / "s")), size=2
        )
        self.client = ReplicaClient(self.nodes.addresses[0])

    def take(self, step: int, ranks: tuple[int, ...] = (0, 1)) -> None:
        """Store the snapshots of these ranks near."""
        for rank in ranks:
            saving, committer = self.gang.request(rank, step), self.gang.committers[rank]
            data = (saving.files["tensors-00000.bin"], saving.layout, saving.files["objects.pt"])
            arena, end = SharedMemory.create(1 << 20), 0
            for each in data:
                arena.map[end : end + len(each)] = bytes(each)
                end += len(each)
            client = ReplicaClient(self.nodes.addresses[rank])
            stored = list(client.store(shard_snapshot(committer, saving, arena, None, 1)))
            assert {kept.tier for kept in stored} == {Tier.MEMORY, Tier.PEER, Tier.DISK}
            assert not [kept for kept in stored if kept.complaint]

    def read(self, step: int, tiers: set[Tier], ranks: set[int]) -> ShardSource:
        """Read a step of the store with what these near tiers of node 0 hold of these ranks."""
        place = self.gang.place()
        name = CheckpointName(1, step, self.gang.attempt)
        manifest = place.manifest(name)
        assert manifest.shards is not None
        offers: dict[int, list[AvailableSnapshot]] = {}
        for offer in self.client.available():
            rank = offer.snapshot.rank
            if offer.tier in tiers and rank in ranks and offer.snapshot.matches(manifest):
                offers.setdefault(rank, []).append(offer)
        near = NearRanges(self.client, offers)
        source = ShardSource(place, name, manifest, place.indexes(name, manifest.shards), near)
        assert b"".join(s.data for s in stream_tensors(source, ["weights"])) == whole(step)
        assert source.objects(0) == b"objects"
        return source


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Saved]:
    made = Saved(tmp_path)
    yield made
    made.nodes.close()


@pytest.mark.parametrize("tier", [Tier.MEMORY, Tier.DISK, Tier.PEER])
def test_each_range_comes_from_the_nearest_tier_that_has_it(saved: Saved, tier: Tier) -> None:
    saved.gang.save(1)
    saved.take(1)
    half = len(whole(1)) // 2
    source = saved.read(1, {tier}, {1} if tier is Tier.PEER else {0})
    assert (source.near_bytes, source.bytes_read, source.tier) == (half, half, Tier.STORE)
    source = saved.read(1, {Tier.MEMORY, tier}, {0, 1})
    assert source.near_bytes + source.bytes_read == 2 * half


def test_damage_near_is_read_elsewhere(saved: Saved) -> None:
    saved.gang.save(1)
    saved.take(1)
    for memory in saved.nodes.memories:
        for held in memory.newest():
            if held.snapshot.rank == 0:
                with open(f"/proc/self/fd/{held.arena.descriptor}", "r+b") as file:  # noqa: PTH123
                    file.seek(1000)
                    file.write(b"\0damaged")
    source = saved.read(1, {Tier.MEMORY, Tier.PEER}, {0})
    assert source.near_bytes == 0
    source = saved.read(1, {Tier.MEMORY, Tier.DISK}, {0})
    assert source.near_bytes == len(whole(1)) // 2


def test_a_step_counts_once_all_ranks_took_it(saved: Saved) -> None:
    for step in (1, 2):
        saved.take(step)
    saved.take(3, ranks=(0,))
    saves = complete_saves(saved.client.available())
    assert [save.step for save in saves] == [2]
    saved.take(3, ranks=(1,))
    assert [save.step for save in complete_saves(saved.client.available())] == [3, 2]


@pytest.mark.process
def test_on_a_notice_the_store_is_waited_for_where_no_peer_holds_a_part(tmp_path: Path) -> None:
    nodes = NearNodes(2, alive=2)
    saver = ShardedCheckpointer(tmp_path, nn.Linear(9, 9), near=nodes.addresses[0])
    saver.save(1)
    (tmp_path / "step-000000002.0.0").touch()  # the store refuses that step
    assert str(saver.save_for_notice(2)) == "the memory of n1"
    nodes.servers[1].close()
    (tmp_path / "step-000000003.0.0").touch()
    with pytest.raises(CheckpointError, match=r"step-000000003\.0\.0"):
        saver.save_for_notice(3)
    assert isinstance(saver.save_for_notice(4), SavedCheckpoint)
    saver.close()
    nodes.desks[0].close()
