"""A warm process becomes the script, and is replaced when it dies, though not for ever."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.agent import restarts
from costopt.agent.launch_spec import ProcessSpec
from costopt.agent.restarts import MAX_LOST_STANDBYS, TrainerRestarts
from costopt.agent.settings import AgentSettings
from costopt.agent.trainer import WarmStandby
from costopt.protocol.messages import Gang
from tests.support.process_state import many_open_files

pytestmark = pytest.mark.process

GANG = Gang("j", 1, ("n",), ("python", "t.py"), "", 0.0, elastic=True)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(restarts, "time", clock)
    return clock


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[TrainerRestarts]:
    ready = TrainerRestarts(AgentSettings("j", "n", tmp_path, standby=True))
    yield ready
    ready.close()


def lost(ready: TrainerRestarts) -> int:
    """Kill the one that waits, for good, and let it be noticed."""
    assert ready._standby is not None
    pid = ready._standby._process.pid
    os.kill(pid, signal.SIGKILL)
    ready._standby._process.wait()
    ready.prepare_standby(GANG)
    return pid


def test_each_that_dies_is_replaced_later_than_the_one_before_until_it_is_enough(
    ready: TrainerRestarts, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    ready.prepare_standby(GANG)
    pids = set()
    for pause_s in (1.0, 2.0, 4.0, 8.0):
        pids.add(lost(ready))
        clock.now += pause_s - 0.1
        ready.prepare_standby(GANG)
        assert ready._standby is None
        clock.now += 0.2
        ready.prepare_standby(GANG)
    pids.add(lost(ready))
    clock.now += 1e6
    ready.prepare_standby(GANG)
    assert ready._standby is None
    assert len(pids) == MAX_LOST_STANDBYS
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "a standby died; the next one starts in 1 s"
    assert said[-1] == "a standby died; no other will be started"
    assert len(said) == MAX_LOST_STANDBYS


def test_one_that_cannot_be_started_is_not_tried_at_each_poll(
    ready: TrainerRestarts, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nowhere/python")
        ready.prepare_standby(GANG)
    ready.prepare_standby(GANG)
    assert ready._standby is None
    clock.now += 1.1
    ready.prepare_standby(GANG)
    assert ready._standby is not None


def warm(variables: dict[str, str], modules: str = "fractions,no_such_module") -> WarmStandby:
    standby = WarmStandby(variables, os.getpid(), modules)
    deadline = time.monotonic() + 120
    while not standby.is_warm():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return standby


SCRIPT = """
import os, sys, helper, mailbox
assert "costopt" not in mailbox.__file__
print(__name__, sys.argv, os.environ["RANK"], os.getcwd(), helper.NAME, "fractions" in sys.modules)
sys.exit(3)
"""


def test_it_runs_the_script_as_python_would(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("NAME = 'near'")
    log = tmp_path / "log"
    spec = ProcessSpec((), (("RANK", "1"),), ("job.py", "--x"))
    process = warm({}).activate(spec, {}, workdir=str(tmp_path), log_path=log)
    assert process is not None
    assert process.wait() == 3
    assert log.read_text() == f"__main__ ['job.py', '--x'] 1 {tmp_path} near True\n"


def test_only_a_script_of_a_warm_process_can_be(tmp_path: Path) -> None:
    standby = warm({})
    assert standby.activate(ProcessSpec((), ()), {}, workdir="/", log_path=tmp_path / "l") is None
    standby.close()
    spec = ProcessSpec((), (), ("job.py",))
    late = WarmStandby({}, os.getpid(), "time")
    late.close()
    assert late.activate(spec, {}, workdir="/", log_path=tmp_path / "l") is None


def test_an_agent_with_over_a_thousand_open_files_sees_that_it_is_warm() -> None:
    with many_open_files():
        warm({}).close()


@pytest.mark.parametrize("ended", [True, False])
def test_it_ends_with_its_agent(ended: bool) -> None:
    standby = warm({})
    process = standby._process
    if ended:
        standby.close()
    else:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
    assert process.wait(120) in (0, -9)
