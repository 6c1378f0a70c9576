"""Real nodes whose GPUs fail, or whose trainer sleeps, are replaced, and no work is lost."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.gpu_health import HealthIssue
from tests.faults.test_run_main_job import training, undisturbed
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import (
    CALM,
    PATIENCE_S,
    PLAIN,
    SPEED,
    UNINTERRUPTIBLE,
    Place,
    wait_until,
)
from tests.support.process_state import pause

pytestmark = [
    pytest.mark.exhaustive("jobs on simulated nodes"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

TOOL = """\
#!/bin/sh
# nvidia-smi of a node with one GPU, whose memory errors begin after the first reading
case "$1" in
  --query-gpu*) echo "0, {busy}, $(cat "$0.errors" 2>/dev/null || echo 0), [N/A]"
                echo {errors} > "$0.errors" ;;
  *) echo "00000000:00:1E.0, No, No" ;;
esac
"""


def equip(place: Place, node_id: str, *, busy: int, errors: int) -> None:
    """Give the node a GPU that is ``busy`` per cent of the time and counts ``errors``."""
    tool = place.state / "jobs" / "tiny" / "nodes" / node_id / "nvidia-smi"
    fresh = tool.with_suffix(".fresh")
    fresh.write_text(TOOL.format(busy=busy, errors=errors))
    fresh.chmod(0o755)
    fresh.rename(tool)


def write(place: Place, health: str) -> None:
    place.write(CALM | UNINTERRUPTIBLE)
    (place.folder / "plain.yaml").write_text(f"{PLAIN}health: {{{health}}}\n")


@pytest.mark.slow
def test_a_node_with_memory_errors_is_replaced_at_a_save_with_the_same_weights(
    tmp_path: Path,
) -> None:
    slowly = tmp_path / "slowly"
    place = Place(tmp_path, nodes=2, steps=80)
    place.run = ["python", *training(slowly, tmp_path / "broken")]
    write(place, "faults: replace")
    slowly.touch()
    with place.controlled() as process:
        wait_until(lambda: bool(place.of(ev.ProgressReported)), "work that is not saved")
        equip(place, "sim-0002", busy=90, errors=3)
        wait_until(lambda: len(place.of(ev.TrainingStarted)) > 1, "training on another node")
        assert place.status()["replaced_nodes"] == 1
        slowly.unlink()
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert place.processes() == []
    undisturbed(place, training(slowly, tmp_path / "whole"))
    assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()
    (found,) = (e for e in place.of(ev.HealthChanged) if e.issue is HealthIssue.FAULT)
    assert found.node_id == "sim-0002"
    assert "3 uncorrected memory errors" in said
    (replaced,) = place.of(ev.NodeReplaced)
    saved = [event.at for event in place.of(ev.CheckpointCommitted)]
    assert any(found.at < at <= replaced.at for at in saved), "not before a save"
    assert next(e.node_id for e in place.of(ev.DrainIntended)) == "sim-0002"
    assert sum(event.units for event in place.of(ev.WorkLost)) == 0
    explained = place.call("explain", "tiny", "--state-dir", "state")
    assert "sim-0002 is replaced" in " ".join(explained.stdout.split())


def test_a_node_whose_trainer_sleeps_is_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path)
    write(place, "idle: replace, idle_after: 20m")
    hold(place.saves, 10)
    with place.controlled() as process:
        wait_until(lambda: bool(place.of(ev.TrainingStarted)), "training")
        equip(place, "sim-0001", busy=0, errors=0)
        wait_until(lambda: len(place.of(ev.TrainingStarted)) > 1, "training on another node")
        let_go(place.saves)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert place.processes() == []
    found = [(e.node_id, e.issue) for e in place.of(ev.HealthChanged) if e.issue is not None]
    assert ("sim-0001", HealthIssue.IDLE) in found
    (replaced,) = place.of(ev.NodeReplaced)
    assert replaced.node_id == "sim-0001"
    resumed_at = int((place.saves / "starts").read_text().split()[-1])
    assert resumed_at == 9, "it saved when it was asked to leave"


def test_while_an_agent_stands_still_one_more_generation_is_formed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    write(place, "idle: alert")
    hold(place.saves, 10)
    with place.controlled() as process:
        wait_until(lambda: bool(place.of(ev.TrainingStarted)), "training")
        agents = [pid for pid in place.processes() if "costopt.agent" in command_of(pid)]
        for agent in agents:
            pause(agent)
        wait_until(lambda: len(place.of(ev.GangFormed)) > 1, "another generation")
        ticks_s = 20 * 60 / SPEED
        with pytest.raises(AssertionError):
            wait_until(lambda: len(place.of(ev.GangFormed)) > 2, "a third one", ticks_s)
        for agent in agents:
            os.kill(agent, signal.SIGCONT)
        let_go(place.saves)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert place.processes() == []
    assert len(place.of(ev.GangFormed)) == 2


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


HANGS_ONCE = """
import os, pathlib, time
from costopt.protocol.trainer_files import *
hung = pathlib.Path("hung")
status = pathlib.Path(os.environ["COSTOPT_STATUS_FILE"])
TrainerStatus(1, TrainerState.STARTING, time.time(), message="restored").write(status)
if not hung.exists():
    hung.touch()
    time.sleep(1e9)
for step in range(11):
    state = TrainerState.TRAINING if step < 10 else TrainerState.FINISHED
    TrainerStatus(2, state, time.time(), done_units=step, saved_units=step,
                  resumed_units=0.0).write(status)
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_a_trainer_that_hangs_before_its_first_step_is_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path, run=[sys.executable, "-c", HANGS_ONCE], steps=10)
    write(place, "idle: replace, idle_after: 20m, max_replacements: 1")
    with place.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert place.processes() == []
    (found,) = (e for e in place.of(ev.HealthChanged) if e.issue is not None)
    assert (found.node_id, found.issue) == ("", HealthIssue.IDLE)
    assert "no first step" in found.message
    assert [e.node_id for e in place.of(ev.NodeReplaced)] == ["sim-0001"]
    assert [e.node_id for e in place.of(ev.NodeLaunched)] == ["sim-0001", "sim-0002"]
    assert place.of(ev.JobFinished)
