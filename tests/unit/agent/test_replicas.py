"""Which peers a node sends its snapshots to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.agent.peers import PeerMonitor
from costopt.agent.replicas import ReplicaService
from costopt.agent.settings import AgentSettings
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, Heartbeat, NodeActivity
from costopt.store.folder import FileStore

MEMBERS = ("n1", "n2", "n3", "n4")
ZONES = ("r/a", "r/b", "r/a", "r/b")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ReplicaService]:
    made = ReplicaService(AgentSettings("j", "n1", tmp_path / "n1", snapshot_bytes=1))
    yield made
    made.close()


def sent_to(
    service: ReplicaService, folder: Path, *, zones: tuple[str, ...], across_zones: bool = False
) -> tuple[list[str], list[str]]:
    """Whom the service of n1 sends its snapshots to, and whose it can fetch."""
    mailbox = Mailbox(FileStore(folder), "j")
    for name in MEMBERS[1:]:
        beat = Heartbeat(name, 1, NodeActivity.TRAINING, 0.0, 1, snapshots=f"127.0.0.1:{name[1]}")
        mailbox.post_heartbeat(beat)
    peers = PeerMonitor(mailbox, MEMBERS[1:])
    peers.poll()
    gang = Gang(
        "j", 1, MEMBERS, ("true",), ".", 0.0, zones=zones, across_zones=across_zones, secret="s"
    )
    service.open(gang)
    service.follow(gang, peers)
    circle = service._tiers.circle
    assert circle is not None
    return [peer.node for peer in circle.receivers], [peer.node for peer in circle.peers]


def test_snapshots_stay_in_their_zone(service: ReplicaService, tmp_path: Path) -> None:
    sent, fetched = sent_to(service, tmp_path, zones=ZONES)
    assert (sent, fetched) == (["n3"], ["n3", "n2", "n4"])


def test_a_node_alone_in_its_zone_sends_nothing(service: ReplicaService, tmp_path: Path) -> None:
    sent, fetched = sent_to(service, tmp_path, zones=("r/a", "r/b", "r/b", "r/b"))
    assert (sent, fetched) == ([], ["n2", "n3", "n4"])


def test_other_zones_come_first_where_the_job_asks(service: ReplicaService, tmp_path: Path) -> None:
    assert sent_to(service, tmp_path, zones=ZONES, across_zones=True)[0] == ["n2", "n4", "n3"]


def test_without_zones_all_are_near(service: ReplicaService, tmp_path: Path) -> None:
    assert sent_to(service, tmp_path, zones=())[0] == ["n2", "n3", "n4"]
