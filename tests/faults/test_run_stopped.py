"""Ctrl-C and its kin: the work is saved, the nodes are given back, the same command goes on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from costopt.controller.controller import DRAIN_TIMEOUT_WALL_S
from costopt.domain import events as ev
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import PATIENCE_S, Place, no_traceback, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def saved_steps(place: Place) -> list[int]:
    return sorted(int(path.stem.split("-")[1]) for path in place.saves.glob("step-*.json"))


def begun_at(place: Place) -> list[int]:
    """The step from which each trainer began: a second rank, that of what the first has saved."""
    return [int(line.split()[-1]) for line in (place.saves / "starts").read_text().splitlines()]


@pytest.mark.parametrize(
    ("number", "whole_group", "code"),
    [
        (signal.SIGINT, True, 130),
        (signal.SIGINT, False, 130),
        (signal.SIGTERM, False, 143),
        (signal.SIGHUP, True, 129),
    ],
)
def test_a_stop_saves_and_the_same_command_goes_on(
    tmp_path: Path, number: signal.Signals, whole_group: bool, code: int
) -> None:
    place = Place(tmp_path, nodes=2, steps=24).write()
    hold(place.saves, 15)
    with place.controlled() as process:
        wait_until(lambda: 10 in saved_steps(place), "checkpoint")
        (os.killpg if whole_group else os.kill)(process.pid, number)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, said
        assert place.processes() == []
    assert no_traceback(said)
    assert "stopping: checkpoint" in said
    last = saved_steps(place)[-1]
    assert last > 10, "what was done since the last checkpoint was saved"
    assert place.of(ev.RunStopped)
    assert {e.node_id for e in place.of(ev.NodeEnded)} == {"sim-0001", "sim-0002"}
    assert place.status()["state"] == "stopped"

    before = len(begun_at(place))
    let_go(place.saves)
    again = place.finish()
    assert again.returncode == 0, again.stderr
    assert min(begun_at(place)[before:]) == last, "it went on from the checkpoint"
    assert len(place.of(ev.JobSubmitted)) == 1
    assert place.processes() == []


def test_a_second_ctrl_c_gives_nodes_back_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path, nodes=2, steps=40)
    up = tmp_path / "up"
    place.run = ["sh", "-c", f"trap '' TERM; touch {up}; while :; do sleep 0.1; done"]
    place.write()
    with place.controlled() as process:
        wait_until(up.exists, "trainer")
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: bool(place.of(ev.DrainIntended)), "drain")
        os.killpg(process.pid, signal.SIGINT)
        # Sooner than the drain, which this trainer does not heed, would be given up.
        _, said = process.communicate(timeout=DRAIN_TIMEOUT_WALL_S)
        assert process.returncode == 130, said
        assert place.processes() == []
    assert no_traceback(said)
    assert {e.node_id for e in place.of(ev.NodeEnded)} == {"sim-0001", "sim-0002"}
    assert place.status()["nodes_alive"] == 0
