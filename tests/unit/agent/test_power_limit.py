"""The power limit of a node's GPUs, against a stand-in that speaks nvidia-smi's messages."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.agent import power_limit
from costopt.agent.power_limit import SAVED_LIMITS_FILE, PowerLimiter
from tests.support.fake_nvidia_smi import FakeNvidiaSmi

pytestmark = pytest.mark.process

PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def _limits_taken_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit that a test leaves behind is taken off, and its tether with it."""
    made: list[PowerLimiter] = []
    begin = PowerLimiter.__init__

    def remember(limit: PowerLimiter, folder: Path) -> None:
        begin(limit, folder)
        made.append(limit)

    monkeypatch.setattr(PowerLimiter, "__init__", remember)
    yield
    for limit in made:
        limit._untie()


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvidiaSmi:
    fake = FakeNvidiaSmi(tmp_path / "bin")
    monkeypatch.setattr(power_limit, "COMMAND_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setenv("PATH", str(fake.folder))
    return fake


def test_a_limit_is_set_on_every_gpu_reported_and_removed(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    limit = PowerLimiter(tmp_path)
    limit.apply(300.0)
    assert tool.limits_w == [300.0, 300.0]
    assert limit.cap_w == 300.0
    assert limit.message == "limited 2 GPUs to 300 W each, before: 400 W"
    assert ["-pm", "1"] in tool.calls
    limit.restore()
    assert tool.limits_w == [400.0, 400.0]
    assert limit.message == "restored the limits of 400 W"
    assert limit.cap_w is None


def test_what_was_there_before_the_first_limit_comes_back(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    tool.become({"0": 400.0, "1": 350.0})
    limit = PowerLimiter(tmp_path)
    limit.apply(300.0)
    limit.apply(250.0)
    assert tool.limits_w == [250.0, 250.0]
    limit.apply(None)
    assert tool.limits_w == [400.0, 350.0]
    assert not (tmp_path / SAVED_LIMITS_FILE).exists()


def test_an_agent_that_follows_a_killed_one_puts_back_what_that_found(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    PowerLimiter(tmp_path).apply(300.0)
    heir = PowerLimiter(tmp_path)
    heir.apply(None)
    assert tool.limits_w == [400.0, 400.0]


KILLED_AT_ONCE = """\
run = power_limit._run
def run_and_die(*arguments):
    run(*arguments)
    if arguments[0] == "-pl":
        os.killpg(0, signal.SIGKILL)
    return run(*arguments)
power_limit._run = run_and_die
"""
"""The agent dies as soon as the tool has set the limit."""
KILLED_LATER = "limit.apply(300.0)\nos.killpg(0, signal.SIGKILL)\n"


@pytest.mark.parametrize("death", [KILLED_AT_ONCE, KILLED_LATER])
def test_an_agent_that_is_killed_leaves_no_limit_behind(
    tool: FakeNvidiaSmi, tmp_path: Path, death: str
) -> None:
    script = (
        "import os, pathlib, signal\n"
        "from costopt.agent import power_limit\n"
        f"power_limit.COMMAND_TIMEOUT_S = {PATIENCE_S}\n"
        f"limit = power_limit.PowerLimiter(pathlib.Path({str(tmp_path)!r}))\n"
        f"{death}"
        "limit.apply(300.0)\n"
    )
    agent = subprocess.run([sys.executable, "-c", script], process_group=0, check=False)
    assert agent.returncode == -signal.SIGKILL
    assert any("-pl" in call for call in tool.calls)
    deadline = time.monotonic() + PATIENCE_S
    while (tmp_path / SAVED_LIMITS_FILE).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert tool.limits_w == [400.0, 400.0]


def test_without_the_right_it_says_so_and_leaves_all_as_it_was(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    tool.become({"0": 400.0}, root=False)
    limit = PowerLimiter(tmp_path)
    limit.apply(300.0)
    assert limit.cap_w is None
    assert "cannot limit to 300 W: nvidia-smi ended with 4" in limit.message
    assert "Insufficient Permissions" in limit.message
    reported = limit.message
    limit.restore()
    assert limit.message == reported


def test_a_limit_out_of_the_gpus_range_is_reported(tool: FakeNvidiaSmi, tmp_path: Path) -> None:
    limit = PowerLimiter(tmp_path)
    limit.apply(50.0)
    assert limit.cap_w is None
    assert "should be between 100.00 W and 400.00 W" in limit.message
    assert tool.limits_w == [400.0, 400.0]


def test_a_tool_that_ends_well_without_doing_it_is_not_believed(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    tool.become({"0": 400.0}, stuck=True)
    limit = PowerLimiter(tmp_path)
    limit.apply(300.0)
    assert limit.cap_w is None
    assert "the limits are 400 W after nvidia-smi said" in limit.message
    assert "not supported" in limit.message


def test_a_gpu_without_power_limits_is_reported(tool: FakeNvidiaSmi, tmp_path: Path) -> None:
    tool.become({"0": None})
    limit = PowerLimiter(tmp_path)
    limit.apply(300.0)
    assert limit.message == "cannot limit to 300 W: GPU 0 has no power limit: [N/A]"


def test_a_node_that_is_limited_further_already_is_never_raised(
    tool: FakeNvidiaSmi, tmp_path: Path
) -> None:
    tool.become({"0": 250.0, "1": 400.0})
    limit = PowerLimiter(tmp_path)
    limit.apply(300.0)
    assert tool.limits_w == [250.0, 400.0]
    assert limit.cap_w is None
    assert limit.message == "cannot limit to 300 W: this node is limited to 250 W already"


def test_a_node_without_the_tool_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    limit = PowerLimiter(tmp_path)
    limit.apply(300.0)
    assert limit.message == "cannot limit to 300 W: there is no nvidia-smi on this node"
    limit.restore()
    assert limit.cap_w is None


def test_nothing_is_said_where_nothing_was_asked(tool: FakeNvidiaSmi, tmp_path: Path) -> None:
    limit = PowerLimiter(tmp_path)
    limit.apply(None)
    assert limit.message == ""
    assert tool.calls == []
