"""A real daemon is killed with SIGKILL at one point after another of one job's life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.live_daemon import TICK_S, DaemonPlace, running
from tests.live_run import ROOT, SPEED, no_traceback, wait_until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.xdist_group("processes"),
]
POINTS = (
    "after LaunchIntended",
    "after launch",
    "after NodeLaunched",
    "after GangFormed",
    "after TrainingStarted",
    "after CheckpointCommitted",
    "after TerminateIntended",
)
MORTAL = ROOT / "tests" / "mortal_daemon.py"
DIES_WITHIN_S = 60.0


@dataclass
class MortalPlace(DaemonPlace):
    """Where daemons are started that kill themselves."""

    def start_mortal(self, point: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "providers")])
        return subprocess.Popen(
            [
                *(sys.executable, str(MORTAL), point, "daemon", "--market", "market.parquet"),
                *("--speed", str(SPEED), "--notice", "300", "--tick", str(TICK_S)),
                *("--state-dir", "state", "--mode", "enforce", "--listen", "none"),
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )


def test_killed_at_one_point_after_another(tmp_path: Path) -> None:
    place = MortalPlace(tmp_path)
    place.write()
    place.submit("one", steps=100)
    for point in POINTS:
        with place.start_mortal(point) as process:
            try:
                _, said = process.communicate(timeout=DIES_WITHIN_S)
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL, f"it never came to {point}: {said}"
        assert no_traceback(said)
    with running(place) as process:
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
