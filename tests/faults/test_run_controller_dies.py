"""A controller killed at any point: the same command goes on, with no orphan, no double launch."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import PATIENCE_S, UNINTERRUPTIBLE, Place, no_traceback, wait_until

pytestmark = [
    pytest.mark.exhaustive("jobs on simulated nodes"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

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
