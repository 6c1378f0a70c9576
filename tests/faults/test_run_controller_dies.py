"""A controller that is killed or interrupted at any point: the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from costopt.controller.controller import DRAIN_TIMEOUT_WALL_S
from costopt.domain import events as ev
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import (
    CALM,
    PATIENCE_S,
    UNINTERRUPTIBLE,
    Place,
    no_traceback,
    wait_until,
)

EACH_S, OVERLAP_S, LAST_S = 2400, 100, 432_000


# One of two pools at a time, in turn: a notice comes every eight seconds of the wall, whenever the
# controller that is to hear it has come back.
TAKES = {
    "a/g4dn.xlarge/spot": tuple(
        state
        for at in range(0, LAST_S, 2 * EACH_S)
        for state in ((at, 2, 0.26), (at + EACH_S, 0, 0.26))
    ),
    "b/g4dn.xlarge/spot": (
        (0, None, None),
        *(
            state
            for at in range(EACH_S, LAST_S, 2 * EACH_S)
            for state in ((at - OVERLAP_S, 2, 0.25), (at + EACH_S, 0, 0.25))
        ),
    ),
}


@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_run_survives_kills_of_its_controller(tmp_path: Path) -> None:
    place = Place(tmp_path, nodes=2, steps=150).write(TAKES | UNINTERRUPTIBLE)
    hold(place.saves, 120)
    points = {
        "a launch was intended": lambda: bool(place.of(ev.LaunchIntended)),
        "a gang was formed": lambda: bool(place.of(ev.GangFormed)),
        "a checkpoint was saved": lambda: any(place.saves.glob("step-*")),
        "a notice was given": lambda: bool(place.of(ev.InterruptionNoticed)),
        "nodes were taken": lambda: len(place.of(ev.NodeEnded)) >= 2,
        "another gang trains": lambda: len(place.of(ev.TrainingStarted)) >= 2,
    }
    clocks = set()
    for what, reached in points.items():
        with place.controlled(clears=False) as process:
            wait_until(reached, what)
            process.send_signal(signal.SIGKILL)
            process.wait()
        clocks.add((place.state / "jobs" / "tiny" / "clock.json").read_text())
    let_go(place.saves)
    with place.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert place.processes() == []
    assert no_traceback(said)
    assert len(clocks) == 1, "the clock is that of the first start"
    (submitted,) = place.of(ev.JobSubmitted)
    (finished,) = place.of(ev.JobFinished)
    assert finished.at <= submitted.deadline_at

    asked = {intent.key: intent.nodes for intent in place.of(ev.LaunchIntended)}
    launched = Counter(node.node_id for node in place.of(ev.NodeLaunched))
    ended = Counter(node.node_id for node in place.of(ev.NodeEnded))
    assert set(launched.values()) == {1}
    assert launched == ended
    per_key = Counter(node.key for node in place.of(ev.NodeLaunched))
    cut_short = {node.node_id for node in place.of(ev.NodeEnded) if node.cause.value == "failed"}
    assert sum(per_key.values()) - len(cut_short) <= sum(asked.values())


@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_the_nodes_of_a_dead_controller_are_named_and_found(tmp_path: Path) -> None:
    place = Place(tmp_path, nodes=2).write()
    hold(place.saves, 40)
    with place.controlled(clears=False) as process:
        wait_until(lambda: bool(place.of(ev.GangFormed)), "gang")
        process.send_signal(signal.SIGKILL)
        process.wait()
    clock = place.state / "jobs" / "tiny" / "clock.json"
    reported = clock.read_text()
    clock.write_text("{}")
    refused = place.finish()
    clock.write_text(reported)
    assert refused.returncode == 1
    assert refused.stderr.count("may still run") == 2
    for node_id in ("sim-0001", "sim-0002"):
        assert node_id in refused.stderr
    found = reconciled(place)
    assert [row["name"] for row in found] == ["sim-0001", "sim-0002"]
    assert {row["why"] for row in found} == {"no process controls job 'tiny'"}
    assert {row["done"] for row in reconciled(place, "--apply")} == {"released"}
    assert place.processes() == []
    assert reconciled(place) == []
    assert place.status()["nodes_alive"] == 0
    let_go(place.saves)
    again = place.finish()
    assert again.returncode == 0, again.stderr


def reconciled(place: Place, *more: str) -> list[dict[str, object]]:
    """The rows of ``costopt reconcile``."""
    looks = ("--market", "market.parquet", "--state-dir", "state", "--grace", "0s", "-o", "json")
    done = place.call("reconcile", *looks, *more)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, object]] = json.loads(done.stdout)["rows"]
    return rows


@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    hold(place.saves, 40)
    with place.controlled() as process:
        wait_until(lambda: bool(place.of(ev.GangFormed)), "gang")
        second = place.finish()
        assert second.returncode == 1
        assert f"already has a controller (process {process.pid})" in second.stderr
        assert no_traceback(second.stderr)
        assert place.processes() != [], "the first one's nodes run on"
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)


UNHURRIED = ("--speed", "30", "--tick", "6")
"""A pool that nobody looks at for an hour, while no controller runs, counts as never seen."""


def _file(place: Place) -> Path:
    return place.state / "jobs" / "tiny" / "learned.json"


def _learned(place: Place) -> dict[str, Any]:
    """The spot pool's record and when it is of, empty where there is none yet."""
    if not _file(place).exists():
        return {}
    kept = json.loads(_file(place).read_bytes())["learned"]
    return next(({"at": kept["at"], **seen} for _, seen in kept["lifetimes"]), {})


def _kill_when(place: Place, reached: Callable[[], bool]) -> dict[str, Any]:
    """What is kept when the controller, killed as soon as this is so, is gone."""
    with place.controlled(*UNHURRIED, clears=False) as process:
        wait_until(reached, "something learned")
        process.send_signal(signal.SIGKILL)
        process.wait()
    return _learned(place)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_controller_comes_back_with_its_estimates(tmp_path: Path) -> None:
    place = Place(tmp_path, steps=20_000, deadline="10d", policy="cheapest").write(
        CALM | UNINTERRUPTIBLE
    )
    before = _kill_when(place, lambda: _learned(place).get("watched_h", 0.0) > 0.02)
    after = _kill_when(place, lambda: _learned(place)["watched_h"] > before["watched_h"])
    assert after["watched_h"] > before["watched_h"] > 0.02
    assert after["age_h"] > before["age_h"]
    _file(place).write_bytes(_file(place).read_bytes()[:-9])
    said = _note_of_next(place)
    assert said.count("learned.json is ignored: it is damaged") == 1
    relearned = _learned(place)
    passed = datetime.fromisoformat(relearned["at"]) - datetime.fromisoformat(after["at"])
    assert relearned["watched_h"] <= passed.total_seconds() / 3600
    assert "learned.json" not in _note_of_next(place)


def _note_of_next(place: Place) -> str:
    """What the next controller says until it has learned something, and is interrupted."""
    changed = _file(place).stat().st_mtime_ns
    with place.controlled(*UNHURRIED) as process:
        wait_until(lambda: _file(place).stat().st_mtime_ns > changed, "a tick")
        os.kill(process.pid, signal.SIGINT)
        return process.communicate(timeout=PATIENCE_S)[1]


def saved_steps(place: Place) -> list[int]:
    return sorted(int(path.stem.split("-")[1]) for path in place.saves.glob("step-*.json"))


def begun_at(place: Place) -> list[int]:
    """The step from which each trainer began: a second rank, that of what the first has saved."""
    return [int(line.split()[-1]) for line in (place.saves / "starts").read_text().splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
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


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
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
