"""An agent limits its GPUs before the trainer starts, follows changes, and takes the limit off."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.agent import power_limit
from costopt.agent.agent import Agent
from costopt.agent.launch_spec import LaunchMethod
from costopt.agent.settings import AgentSettings
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, Heartbeat, NodeActivity
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
