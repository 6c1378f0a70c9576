"""Exactly one node serves the membership, and another when it is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.agent import membership_server, peers
from costopt.agent.membership_server import MembershipHost
from costopt.agent.peers import PeerMonitor
from costopt.checkpoint.replicas import wire
from costopt.checkpoint.replicas.wire import GangKey, authenticate
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.membership import MembershipAddress
from costopt.protocol.messages import Gang, Heartbeat, NodeActivity
from costopt.store.folder import FileStore
from tests.support.manual_clock import ManualClock

SILENT_S = 3.0
SECRET = "secret"
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    monkeypatch.setattr(membership_server, "SEND_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(wire, "HANDSHAKE_TIMEOUT_S", PATIENCE_S)
    return ManualClock(monkeypatch, peers, membership_server)


class Node:
    def __init__(self, folder: Path, name: str, *others: str) -> None:
        self.mailbox = Mailbox(FileStore(folder / "store"), "j")
        self.name = name
        self.host = MembershipHost(self.mailbox, name, "127.0.0.1", folder / name, SILENT_S)
        self.peers = PeerMonitor(self.mailbox, others)
        self.beats = 0

    def beat(self) -> None:
        self.beats += 1
        beat = Heartbeat(self.name, 1, NodeActivity.TRAINING, at=0.0, beat=self.beats)
        self.mailbox.post_heartbeat(beat)

    def keep_up(self, *members: str, generation: int = 1) -> str:
        self.beat()
        self.peers.poll()
        gang = Gang("j", generation, members, ("t.py",), "/", 0.0, elastic=True, secret=SECRET)
        self.host.ensure_running(gang, self.peers)
        if not self.host.file.exists():
            return ""
        reported = MembershipAddress.read(self.host.address)
        assert reported.key == GangKey("j", generation, SECRET)
        return reported.place

    def admits(self, generation: int) -> bool:
        """Whether who knows that generation's secret may join through this node's file."""
        host, port = MembershipAddress.read(self.host.address).place.split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as link:
            try:
                return authenticate(link, GangKey("j", generation, SECRET), {})[1] is not None
            except ValueError:
                return False


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    made = Node(tmp_path, "a", "b"), Node(tmp_path, "b", "a")
    yield made
    for node in made:
        node.host.close()


def test_rank_0_serves_and_the_others_learn_where(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    assert b.keep_up("a", "b") == ""
    address = a.keep_up("a", "b")
    assert address.startswith("127.0.0.1:")
    assert b.keep_up("a", "b") == address
    assert a.host.address == a.host.file.as_uri()


def test_who_serves_goes_on_though_another_is_first_now(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    address = b.keep_up("b")
    assert a.keep_up("a", "b", generation=2) == address
    assert b.keep_up("a", "b", generation=2) == address
    assert [a.admits(generation) for generation in (1, 2, 3)] == [False, True, False]


def test_another_takes_over_from_who_is_silent_or_no_member(
    nodes: tuple[Node, Node], clock: ManualClock
) -> None:
    a, b = nodes
    first = a.keep_up("a", "b")
    b.keep_up("a", "b")
    clock.now_s += 2 * SILENT_S
    second = b.keep_up("a", "b")
    assert second not in ("", first)
    assert a.keep_up("a", "b") == second, "who comes back serves no more"
    third = a.keep_up("a", generation=2)
    assert third not in (first, second)
    assert b.keep_up("a", generation=2) == third
    assert b.host._server is None
