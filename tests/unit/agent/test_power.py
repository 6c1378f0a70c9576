"""An agent limits its GPUs before the trainer starts, follows changes, and takes the limit off."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.agent import power_limit
from costopt.agent.agent import Agent
from costopt.agent.launch_spec import LaunchMethod
from costopt.agent.meters import NodeMeter
from costopt.agent.settings import AgentSettings
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, Heartbeat, NodeActivity, NodeMeasurement
from costopt.store.folder import FileStore
from tests.support.fake_nvidia_smi import FakeNvidiaSmi

pytestmark = pytest.mark.process

PATIENCE_S = 120.0


class Node:
    """An agent that a test ticks, and the controller's side of its mailbox."""

    def __init__(self, folder: Path) -> None:
        store = FileStore(folder / "store")
        self.mailbox = Mailbox(store, "j")
        self.folder = folder / "node"
        self.folder.mkdir()
        settings = AgentSettings(
            "j", "n1", self.folder, launcher=LaunchMethod.DIRECT, heartbeat_s=0
        )
        self.agent = Agent(settings, store)

    def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, self.beat()
            self.agent.tick()
            time.sleep(0.01)

    def beat(self) -> Heartbeat:
        self.agent.tick()
        beat = self.mailbox.heartbeat("n1")
        assert beat is not None
        return beat


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvidiaSmi:
    fake = FakeNvidiaSmi(tmp_path / "bin")
    monkeypatch.setattr(power_limit, "COMMAND_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setenv("PATH", f"{fake.folder}:/usr/bin:/bin")
    return fake


def gang(tmp_path: Path, cap_w: float | None) -> Gang:
    """The trainer writes down the limits that it finds, then waits until it is let go."""
    script = (
        "nvidia-smi --query-gpu=index,power.limit --format=csv,noheader,nounits > seen; "
        "while [ ! -e go ]; do sleep 0.02; done"
    )
    return Gang("j", 1, ("n1",), ("/bin/sh", "-c", script), str(tmp_path), 0.0, power_cap_w=cap_w)


def test_the_limit_is_there_when_the_trainer_starts_and_gone_when_it_ends(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    node.mailbox.post_gang(gang(tmp_path, 300.0))
    seen = tmp_path / "seen"
    node.until(lambda: seen.exists() and seen.read_text().count("\n") == 2)
    assert seen.read_text() == "0, 300.00\n1, 300.00\n"
    assert node.beat().power_cap_w == 300.0
    (tmp_path / "go").touch()
    node.until(lambda: node.beat().state is NodeActivity.FINISHED)
    assert tool.limits_w == [400.0, 400.0]
    assert node.beat().power_cap_w is None
    assert node.beat().power_message == "restored the limits of 400 W"


def test_a_changed_limit_is_followed_while_the_trainer_runs_on(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    node, first = Node(tmp_path), gang(tmp_path, None)
    node.mailbox.post_gang(first)
    node.until((tmp_path / "seen").exists)
    assert tool.limits_w == [400.0, 400.0]
    node.mailbox.post_gang(replace(first, power_cap_w=250.0))
    node.until(lambda: tool.limits_w == [250.0, 250.0])
    assert node.beat().power_cap_w == 250.0
    assert node.beat().state in (NodeActivity.STARTING, NodeActivity.TRAINING)
    node.mailbox.post_gang(replace(first, power_cap_w=None))
    node.until(lambda: tool.limits_w == [400.0, 400.0])
    (tmp_path / "go").touch()
    node.until(lambda: node.beat().state is NodeActivity.FINISHED)


def test_a_limit_that_cannot_be_set_is_reported_and_training_goes_on(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    tool.become({"0": 400.0, "1": 400.0}, root=False)
    node = Node(tmp_path)
    node.mailbox.post_gang(gang(tmp_path, 300.0))
    (tmp_path / "go").touch()
    node.until(lambda: node.beat().state is NodeActivity.FINISHED)
    assert node.beat().power_cap_w is None
    assert node.beat().power_asked_w == 300.0
    assert "Insufficient Permissions" in node.beat().power_message


@pytest.mark.parametrize(
    ("cap_w", "root", "why"),
    [
        (300.0, False, "Insufficient Permissions"),
        (400.0, True, "not below the limit of 400 W"),
        (300.0, True, "no meter reads the energy"),
        (None, True, "no meter reads the energy"),
    ],
)
def test_a_probe_that_cannot_measure_says_why_and_leaves_no_limit(
    tool: FakeNvidiaSmi, tmp_path: Path, cap_w: float | None, root: bool, why: str
) -> None:
    tool.become({"0": 400.0, "1": 400.0}, root=root)
    node, first = Node(tmp_path), reporting_gang(tmp_path)
    node.mailbox.post_gang(first)
    node.until(lambda: node.beat().state is NodeActivity.TRAINING)
    assert node.beat().probe is None
    node.mailbox.post_gang(replace(first, probe=1, probe_cap_w=cap_w, probe_s=0.5))
    node.until(lambda: node.beat().probe is not None)
    probe = node.beat().probe
    assert probe is not None
    assert (probe.generation, probe.number) == (1, 1)
    assert why in probe.message
    assert tool.limits_w == [400.0, 400.0]
    node.agent.request_exit()
    node.agent.run()


def test_a_node_that_is_asked_to_leave_ends_its_probe(tool: FakeNvidiaSmi, tmp_path: Path) -> None:
    node, first = Node(tmp_path), reporting_gang(tmp_path)
    node.agent._meter = Unmoved()
    node.mailbox.post_gang(replace(first, probe=1, probe_cap_w=50.0, probe_s=600.0))
    node.until(lambda: tool.limits_w == [100.0, 100.0])
    assert node.beat().power_cap_w == 100.0, "the lowest that the GPUs allow"
    node.mailbox.request_drain("n1")
    node.until(lambda: tool.limits_w == [400.0, 400.0])
    node.agent.request_exit()
    node.agent.run()


class Unmoved(NodeMeter):
    """A meter that reads something at every instant."""

    def reading(self) -> NodeMeasurement:
        now = time.time()
        return NodeMeasurement(now, now, 1.0, ("gpu",), 2)


def reporting_gang(tmp_path: Path) -> Gang:
    """The trainer reports without progress until it is stopped."""
    script = (
        "import time\n"
        "from costopt.protocol.trainer_files import TrainerEnv, TrainerState, TrainerStatus\n"
        "env = TrainerEnv.read()\n"
        "while not env.notice_file.exists():\n"
        "    status = TrainerStatus(1, TrainerState.TRAINING, time.time(), done_units=1.0)\n"
        "    status.write(env.status_file)\n"
        "    time.sleep(0.05)\n"
    )
    return Gang("j", 1, ("n1",), (sys.executable, "-c", script), str(tmp_path), 0.0)
