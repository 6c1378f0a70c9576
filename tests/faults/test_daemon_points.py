"""A real daemon is killed with SIGKILL at one point after another of one job's life."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.support.counting_trainer import hold
from tests.support.live_daemon import DaemonPlace
from tests.support.live_run import PATIENCE_S, no_traceback, wait_until
from tests.support.node_folder import ROOT

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.worker_group("processes"),
]
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
