"""Peers that die, lines that break, bits that flip, disks that are full: the rest goes on."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.checkpoint.replicas import peer as peer_module
from costopt.checkpoint.replicas.local import DiskTier, MemoryTier
from costopt.checkpoint.replicas.manager import AvailableSnapshot, ReplicaGroup, ReplicaManager
from costopt.checkpoint.replicas.peer import PeerClient, PeerServer
from costopt.checkpoint.replicas.snapshot import Tier
from costopt.checkpoint.replicas.wire import GangKey, receive_frame, send_frame
from costopt.domain.errors import CheckpointError
from costopt.store import atomic_file
from tests.support.errors import has_code
from tests.support.snapshot_fixtures import MIB, Line, be_patient_with_peers, held

KEY = GangKey("j", 3, "secret")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient_with_peers(monkeypatch)


class Node:
    """Another node's memory, served."""

    def __init__(self, max_bytes: int = 64 * MIB) -> None:
        self.memory = MemoryTier(max_bytes)
        self.server = PeerServer(self.memory)
        self.server.key = KEY
        self.peer = PeerClient("n2", self.server.address, "b")

    def steps(self) -> list[int]:
        return [each.snapshot.manifest.step for each in self.memory.newest()]


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.server.close()


def lined(node: Node, **limits: object) -> tuple[PeerClient, Line]:
    line = Line(node.server.address, **limits)  # type: ignore[arg-type]
    return PeerClient("n3", line.address), line


def test_a_peer_holds_what_it_was_sent_and_returns_it(node: Node) -> None:
    given = held(7)
    node.peer.send(KEY, given.snapshot, given.view)
    assert node.peer.snapshots(KEY) == (given.snapshot,)
    target = bytearray(MIB)
    node.peer.fetch(KEY, given.snapshot, memoryview(target))
    assert target == given.view


def test_a_peer_that_dies_while_it_receives_costs_nothing_but_itself(node: Node) -> None:
    other = Node()
    dying, line = lined(other, upward=MIB // 2)
    peers = (dying, node.peer)
    tiers = ReplicaManager(MemoryTier(64 * MIB), circle=ReplicaGroup(KEY, peers, peers))
    reported = list(tiers.store(held(7)))
    assert [(kept.tier, kept.node, kept.complaint) for kept in reported] == [
        (Tier.MEMORY, "", ""),
        (Tier.PEER, "n2", ""),
    ]
    tiers.circle = ReplicaGroup(KEY, (dying,), (dying,))
    (complaint,) = [kept.complaint for kept in tiers.store(held(8)) if kept.tier is Tier.PEER]
    assert complaint.startswith(f"n3 at {line.address}")
    line.close()
    other.server.close()


def test_a_stream_that_is_cut_leaves_what_was_there_before(node: Node) -> None:
    first = held(7)
    node.peer.send(KEY, first.snapshot, first.view)
    cut, line = lined(node, upward=MIB // 2)
    second = held(8)
    with pytest.raises(CheckpointError, match="n3"):
        cut.send(KEY, second.snapshot, second.view)
    line.close()
    assert node.steps() == [7]
    node.peer.send(KEY, second.snapshot, second.view)
    assert node.steps() == [8]


def test_a_fetch_that_is_cut_is_not_a_snapshot(node: Node) -> None:
    given = held(7)
    node.peer.send(KEY, given.snapshot, given.view)
    cut, line = lined(node, downward=MIB // 2)
    with pytest.raises(CheckpointError, match="the stream ended after"):
        cut.fetch(KEY, given.snapshot, memoryview(bytearray(MIB)))
    line.close()


def test_a_peer_that_goes_silent_is_given_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "IO_TIMEOUT_S", 0.1)
    silent, line = lined(node, upward=MIB // 2, hangs=True)
    given = held(7)
    with pytest.raises(CheckpointError, match="timed out"):
        silent.send(KEY, given.snapshot, given.view)
    line.close()


@pytest.mark.parametrize("where", [0, MIB // 2, MIB - 1])
def test_a_bit_that_flips_in_a_peers_memory_is_found(node: Node, where: int) -> None:
    given = held(7)
    node.peer.send(KEY, given.snapshot, given.view)
    node.memory.newest()[0].arena.map[where] ^= 1
    with pytest.raises(CheckpointError, match=r"n2 at .* is damaged between"):
        node.peer.fetch(KEY, given.snapshot, memoryview(bytearray(MIB)))


def test_what_is_not_what_its_manifest_says_is_not_kept(node: Node) -> None:
    with pytest.raises(CheckpointError, match="damaged"):
        node.peer.send(KEY, held(7).snapshot, held(8).view)
    assert node.steps() == []


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (GangKey("j", 2, "secret"), "generation 2 is over: generation 3 trains"),
        (GangKey("j", 3, "guessed"), "not signed with the gang's secret"),
        (GangKey("other", 3, "secret"), "this node trains j"),
        (GangKey("j", 4, "secret"), "does not know generation 4"),
    ],
)
def test_who_is_not_of_the_gang_gets_and_leaves_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch, key: GangKey, says: str
) -> None:
    monkeypatch.setattr(peer_module, "PATIENCE_S", 0.05)
    given = held(7)
    for ask in (
        lambda: node.peer.send(key, given.snapshot, given.view),
        lambda: node.peer.snapshots(key),
    ):
        with pytest.raises(CheckpointError, match=says):
            ask()
    assert node.steps() == []


def test_who_answers_without_the_secret_is_not_believed() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def response() -> None:
        with listener.accept()[0] as link:
            send_frame(link, {"nonce": "n"})
            nonce = str(receive_frame(link)["nonce"])
            wrong = GangKey("j", 3, "guessed")
            send_frame(link, wrong.sign(nonce, {"ok": True, "snapshots": []}))

    thread = threading.Thread(target=response)
    thread.start()
    with pytest.raises(CheckpointError, match="not signed"):
        PeerClient("n2", f"127.0.0.1:{listener.getsockname()[1]}").snapshots(KEY)
    thread.join()
    listener.close()


def test_a_node_that_hears_late_of_a_new_generation_is_waited_for(node: Node) -> None:
    key = GangKey("j", 4, "next")
    given = held(7)
    sleep = time.sleep

    def hear(_: float) -> None:
        node.server.key = key
        sleep(0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", hear)
        node.peer.send(key, given.snapshot, given.view)
    assert node.steps() == [7]


def test_memory_is_bounded_and_an_older_snapshot_never_replaces_a_newer() -> None:
    small = Node(max_bytes=2 * MIB + MIB // 2)
    for step in (7, 8, 9):
        given = held(step)
        small.peer.send(KEY, given.snapshot, given.view)
    assert small.steps() == [9]
    old = held(6, at=1.0)
    with pytest.raises(CheckpointError, match="step 6"):
        small.peer.send(KEY, old.snapshot, old.view)
    large = held(10, size_bytes=2 * MIB)
    with pytest.raises(CheckpointError, match=r"step 10 .*\(2 MiB\).* 2 MiB"):
        small.peer.send(KEY, large.snapshot, large.view)
    assert small.steps() == [9]
    later = held(11, size_bytes=2 * MIB, generation=2)
    small.peer.send(KEY, later.snapshot, later.view)
    assert small.steps() == [11]
    small.server.close()


def test_a_full_disk_keeps_what_it_had_and_the_other_tiers_go_on(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskTier(tmp_path, 64 * MIB)
    circle = ReplicaGroup(KEY, (node.peer,), (node.peer,))
    tiers = ReplicaManager(MemoryTier(64 * MIB), disk, circle)
    assert not [kept.complaint for kept in tiers.store(held(7)) if kept.complaint]

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(bytes(data[: len(data) // 2]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_file, "write_atomic", full)
    reported = {kept.tier: kept.complaint for kept in tiers.store(held(8))}
    assert "No space left" in reported.pop(Tier.DISK)
    assert reported == {Tier.MEMORY: "", Tier.PEER: ""}
    assert [each.manifest.step for each in DiskTier(tmp_path, 0).snapshots()] == [7]
    assert len(list(tmp_path.iterdir())) == 1


def test_the_disk_is_bounded_and_what_is_damaged_there_is_found(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 2 * MIB)
    for step in (7, 8):
        disk.write(held(step).snapshot, held(step).view)
    (kept,) = disk.snapshots()
    assert kept.manifest.step == 8
    with pytest.raises(CheckpointError, check=has_code("too_large")):
        disk.write(held(9, size_bytes=3 * MIB).snapshot, held(9, size_bytes=3 * MIB).view)
    (path,) = tmp_path.glob("*/tensors-00000.bin")
    data = bytearray(path.read_bytes())
    data[17] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        disk.read(kept, kept.manifest.parts[0])


def test_a_peer_that_has_left_the_gang_is_not_asked(node: Node) -> None:
    tiers = ReplicaManager(MemoryTier(MIB), circle=ReplicaGroup(KEY, (), ()))
    with pytest.raises(CheckpointError, check=has_code("not_a_member")):
        tiers.fetch(AvailableSnapshot(Tier.PEER, held(7).snapshot, "n2"))
