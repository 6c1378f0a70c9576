"""A node ends itself once it heard of no one for long; which peers it sends its snapshots to."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.agent.agent import Agent
from costopt.agent.contact import Contact, ContactSettings
from costopt.agent.peers import PeerMonitor
from costopt.agent.replicas import ReplicaService
from costopt.agent.settings import AgentSettings
from costopt.domain.errors import StoreError
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, Heartbeat, NodeActivity
from costopt.store.folder import FileStore
from costopt_sim.process_host import CONTROLLER_LOCK, ProcessHost
from tests.support.live_run import wait_until

LIMIT_S = 0.3


class UnreachableStore(FileStore):
    """Answers until it is switched off."""

    is_off = False

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        if self.is_off:
            raise StoreError("no route to host")
        return super().get(key, max_bytes)


def test_an_agent_leaves_once_its_store_has_not_answered_for_long(tmp_path: Path) -> None:
    store = UnreachableStore(tmp_path / "store")
    settings = AgentSettings(
        "job", "n-1", tmp_path / "node", poll_s=0.01, contact=ContactSettings(LIMIT_S)
    )
    agent = Agent(settings, store)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        time.sleep(2 * LIMIT_S)
        assert thread.is_alive()
        store.is_off = True
        wait_until(lambda: not thread.is_alive(), "the agent's end")
    finally:
        agent.request_exit()
        thread.join()


def test_the_lock_of_a_controller_counts_alone_where_it_is_given(tmp_path: Path) -> None:
    lock = tmp_path / "controller.lock"
    lock.touch()
    contact = Contact(ContactSettings(LIMIT_S, controller_lock=lock))
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        time.sleep(2 * LIMIT_S)
        assert not contact.is_lost()
    contact.note_store()
    wait_until(contact.is_lost, "the loss")


def test_a_child_that_is_forked_while_an_agent_looks_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the open file of its parent: a controller that starts later must get the lock."""
    lock = tmp_path / "controller.lock"
    lock.touch()
    inherited: list[int] = []
    flock = fcntl.flock

    def fork_then_lock(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        inherited.append(os.dup(descriptor))

    monkeypatch.setattr(fcntl, "flock", fork_then_lock)
    Contact(ContactSettings(LIMIT_S, controller_lock=lock)).is_lost()
    with lock.open("r+") as controller:
        flock(controller, fcntl.LOCK_SH | fcntl.LOCK_NB)
    for descriptor in inherited:
        os.close(descriptor)


def test_a_controller_waits_for_no_agent_that_looks(tmp_path: Path) -> None:
    host = ProcessHost(tmp_path, tmp_path / "store", launcher="direct", processes=1)
    lock = tmp_path / CONTROLLER_LOCK
    lock.touch()
    with lock.open("r+") as agent:
        fcntl.flock(agent, fcntl.LOCK_EX)
        assert host.found() == ((), ())
    host.found()
    with lock.open("r+") as agent, pytest.raises(BlockingIOError):
        fcntl.flock(agent, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_timer_is_renewed_as_long_as_the_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    tool = tmp_path / "systemctl"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    contact = Contact(ContactSettings(600.0, renew_timer="end.timer"))
    contact.note_store()
    contact.note_store()
    assert calls.read_text() == "restart end.timer\n"
    tool.write_text("#!/bin/sh\necho no such unit >&2; exit 5\n")
    failing = Contact(ContactSettings(600.0, renew_timer="end.timer"))
    failing.note_store()
    assert "no such unit" in failing.error


CONTROLLER = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from costopt.domain.fleet import Node, NodeState
from costopt.domain.market import Pool
from costopt_sim.process_host import ProcessHost
folder = Path(sys.argv[1])
host = ProcessHost(folder, folder / "store", launcher="direct", processes=1, max_unreachable_s=1.0)
pool = Pool.parse("sim/here/a/small/on_demand")
host.start(Node("n-1", "me", "job", pool, "k", NodeState.RUNNING, datetime.now(UTC), 1.0))
print(host._records["n-1"].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_simulated_node_ends_once_its_controller_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, tmp_path], stdout=subprocess.PIPE, text=True
    ) as controller:
        assert controller.stdout is not None
        agent = int(controller.stdout.readline())
        heartbeat = tmp_path / "store/jobs/job/nodes/n-1/heartbeat.json"
        try:
            wait_until(heartbeat.exists, "heartbeat")
            time.sleep(3.0)
            os.kill(agent, 0)
        finally:
            controller.send_signal(signal.SIGKILL)
            controller.wait()
    wait_until(lambda: not Path(f"/proc/{agent}/cmdline").read_bytes(), "the node's end")
    assert NodeActivity.GONE.value in heartbeat.read_text()


MEMBERS = ("n1", "n2", "n3", "n4")


ZONES = ("r/a", "r/b", "r/a", "r/b")


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


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")
def test_snapshots_stay_in_their_zone(service: ReplicaService, tmp_path: Path) -> None:
    sent, fetched = sent_to(service, tmp_path, zones=ZONES)
    assert (sent, fetched) == (["n3"], ["n3", "n2", "n4"])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")
def test_a_node_alone_in_its_zone_sends_nothing(service: ReplicaService, tmp_path: Path) -> None:
    sent, fetched = sent_to(service, tmp_path, zones=("r/a", "r/b", "r/b", "r/b"))
    assert (sent, fetched) == ([], ["n2", "n3", "n4"])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")
def test_other_zones_come_first_where_the_job_asks(service: ReplicaService, tmp_path: Path) -> None:
    assert sent_to(service, tmp_path, zones=ZONES, across_zones=True)[0] == ["n2", "n4", "n3"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")
def test_without_zones_all_are_near(service: ReplicaService, tmp_path: Path) -> None:
    assert sent_to(service, tmp_path, zones=())[0] == ["n2", "n3", "n4"]
