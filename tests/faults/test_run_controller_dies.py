"""A controller killed at any point: the same command goes on, with no orphan, no double launch."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.live_run import FIRM, Place, controlled, no_traceback, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

# Again and again, so that a notice comes while a controller lives, however slow the machine is.
TAKES = {
    "a/g4dn.xlarge/spot": ((0, 2, 0.26), (1500, 0, 0.26), (4400, 2, 0.26), (6000, 0, 0.26)),
    "b/g4dn.xlarge/spot": ((0, None, None), (1400, 2, 0.25), (4500, 0, 0.25), (9000, 2, 0.25)),
}


def test_a_run_survives_kills_of_its_controller(tmp_path: Path) -> None:
    place = Place(tmp_path, nodes=2, steps=110).write(TAKES | FIRM)
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
        with controlled(place, clears=False) as process:
            wait_until(reached, what)
            process.send_signal(signal.SIGKILL)
            process.wait()
        clocks.add((place.state / "jobs" / "tiny" / "clock.json").read_text())
    with controlled(place) as process:
        _, said = process.communicate(timeout=60)
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


def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, steps=200).write()
    with controlled(place) as process:
        wait_until(lambda: bool(place.of(ev.GangFormed)), "gang")
        second = place.finish()
        assert second.returncode == 1
        assert f"already has a controller (process {process.pid})" in second.stderr
        assert no_traceback(second.stderr)
        assert place.processes() != [], "the first one's nodes run on"
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
