"""A daemon killed, ended or given a command at any point: nothing twice, nothing left behind."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.control import DesiredState
from tests.support.counting_trainer import hold, let_go
from tests.support.live_daemon import DaemonPlace, awaits_end
from tests.support.live_run import PATIENCE_S, UNINTERRUPTIBLE, no_traceback, wait_until
from tests.support.node_folder import ROOT

TAKES = {
    "a/g4dn.xlarge/spot": (
        *((0, 2, 0.26), (1800, 0, 0.26), (4400, 2, 0.26), (6000, 0, 0.26), (12000, 2, 0.26)),
        *((24000, 0, 0.26), (48000, 2, 0.26), (96000, 0, 0.26), (192000, 2, 0.26)),
    ),
    "b/g4dn.xlarge/spot": (
        *((0, None, None), (1400, 2, 0.25), (4500, 0, 0.25), (5900, 2, 0.25), (12100, 0, 0.25)),
        *((23900, 2, 0.25), (48100, 0, 0.25), (95900, 2, 0.25), (192100, 0, 0.25)),
    ),
}
"""Spot goes again and again, however late a slow machine begins, and later than the time before."""


JOBS = ("one", "two")


def _each_once(place: DaemonPlace, job: str) -> None:
    """No node was launched twice, and each has ended."""
    launched = Counter(node.node_id for node in place.of(job, ev.NodeLaunched))
    ended = Counter(node.node_id for node in place.of(job, ev.NodeEnded))
    assert launched == ended
    assert set(launched.values()) == {1}
    asked = {intent.key: intent.nodes for intent in place.of(job, ev.LaunchIntended)}
    per_key = Counter(node.key for node in place.of(job, ev.NodeLaunched))
    assert all(count <= asked[key] for key, count in per_key.items())


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_jobs_of_two_tenants_survive_kills_of_the_daemon(tmp_path: Path) -> None:
    place = DaemonPlace(tmp_path).write(TAKES | UNINTERRUPTIBLE)
    points = {
        "a launch was intended": lambda: bool(place.of("one", ev.LaunchIntended)),
        "gangs train": lambda: all(place.of(job, ev.TrainingStarted) for job in JOBS),
        "a node was taken": lambda: any(place.of(job, ev.NodeEnded) for job in JOBS),
    }
    for job, tenant in zip(JOBS, ("vision", "speech"), strict=True):
        place.submit(job, tenant, steps=120)
        hold(place.saves(job), 100)
    for what, reached in points.items():
        with place.controlled(clears=False) as process:
            wait_until(reached, what)
            process.send_signal(signal.SIGKILL)
            process.wait()
    for job in JOBS:
        let_go(place.saves(job))
    with place.controlled() as process:
        wait_until(lambda: all(place.of(job, ev.JobFinished) for job in JOBS), "finish of both")
        wait_until(lambda: place.processes() == [], "end of all nodes")
        wait_until(
            lambda: all(
                len(place.of(job, ev.NodeEnded)) == len(place.of(job, ev.NodeLaunched))
                for job in JOBS
            ),
            "confirmation of all ends",
        )
        # The one before it may have seen the ends already.
        wait_until(lambda: awaits_end(process), "start of the daemon")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    assert no_traceback(said)
    for job in JOBS:
        _each_once(place, job)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_daemon_that_is_ended_leaves_its_nodes_to_the_next(tmp_path: Path) -> None:
    place = DaemonPlace(tmp_path).write()
    place.submit("one")
    hold(place.saves("one"), 40)
    with place.controlled(clears=False) as process:
        wait_until(lambda: bool(place.of("one", ev.TrainingStarted)), "training")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "nodes keep running" in said
        assert no_traceback(said)
    assert place.processes() != []
    let_go(place.saves("one"))
    with place.controlled():
        wait_until(lambda: bool(place.of("one", ev.JobFinished)), "finish")
        wait_until(lambda: bool(place.of("one", ev.NodeEnded)), "end of the node")
    assert len(place.of("one", ev.NodeLaunched)) == 1
    assert len(place.of("one", ev.TrainingStarted)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_paused_job_saves_first_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    place = DaemonPlace(tmp_path).write()
    place.submit("one")
    hold(place.saves("one"), 40)
    with place.controlled():
        wait_until(lambda: bool(place.of("one", ev.TrainingStarted)), "training")
        place.tell("one", DesiredState.PAUSED)
        wait_until(lambda: bool(place.of("one", ev.NodeEnded)), "release")
        place.tell("one", DesiredState.RUN)
        wait_until(lambda: len(place.of("one", ev.TrainingStarted)) >= 2, "second start")
        assert place.of("one", ev.WorkLost) == []
        resumed_at = place.of("one", ev.TrainingStarted)[-1].units
        assert resumed_at in [saves.units for saves in place.of("one", ev.CheckpointCommitted)]
        place.tell("one", DesiredState.CANCELLED)
        wait_until(lambda: place.processes() == [], "release for good")
    assert place.of("one", ev.JobFinished) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_daemon_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    place = DaemonPlace(tmp_path).write()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = place.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        wait_until((place.state / "daemon.sock").exists, "socket")
        process.send_signal(signal.SIGHUP)
        place.submit("one")
        wait_until(
            lambda: process.poll() is not None or bool(place.of("one", ev.TrainingStarted)),
            "training after the signal",
        )
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        place.clear()
    assert process.returncode == 0


STEPS, SAVED_AT = 60, 10


POINTS = {
    "after LaunchIntended": SAVED_AT,
    "after launch": SAVED_AT,
    "after NodeLaunched": SAVED_AT,
    "after GangFormed": SAVED_AT,
    "after TrainingStarted": SAVED_AT,
    "after CheckpointCommitted": STEPS,
    "after TerminateIntended": STEPS + 1,
}
"""And the step to which the trainer does not come before a daemon has died there."""


MORTAL = ROOT / "tests" / "support" / "crashing_daemon.py"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.worker_group("processes")
def test_killed_at_one_point_after_another(tmp_path: Path) -> None:
    place = DaemonPlace(tmp_path)
    place.write()
    place.submit("one", steps=STEPS)
    for point, step in POINTS.items():
        hold(place.saves("one"), step)
        with place.start(program=(str(MORTAL), point)) as process:
            try:
                _, said = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL, f"it never came to {point}: {said}"
        assert no_traceback(said)
    with place.controlled() as process:
        wait_until(lambda: bool(place.of("one", ev.JobFinished)), "finish")
        wait_until(lambda: bool(place.of("one", ev.NodeEnded)), "end of the node")
        wait_until(lambda: place.processes() == [], "end of all processes")
    launched = Counter(node.node_id for node in place.of("one", ev.NodeLaunched))
    ended = Counter(node.node_id for node in place.of("one", ev.NodeEnded))
    assert len(launched) == 1, "one launch, however often its controller died"
    assert launched == ended
    assert set(launched.values()) == {1}
    (finished,) = place.of("one", ev.JobFinished)
    assert finished.at <= place.of("one", ev.JobSubmitted)[0].deadline_at
    assert place.of("one", ev.WorkLost) == []
