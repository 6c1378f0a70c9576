"""The main job: a market that takes nodes three times changes no bit of the weights."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from tests.support.live_run import PATIENCE_S, UNINTERRUPTIBLE, Place, wait_until
from tests.support.node_folder import ROOT, variables

STEPS = 80
PACE_S = 0.4
"""While it goes slowly, it trains for longer than the market is harsh."""

# Both nodes are taken, or one of them, by the wall every 6 s, and no more after 36 s: a controller
# that is slow to come still sees three strikes, and a gang that is slow to form still trains.
HARSH = {
    "a/g4dn.xlarge/spot": (
        *((0, 2, 0.26), (1800, 0, 0.26), (3500, 2, 0.26)),
        *((5400, 1, 0.26), (7100, 2, 0.26), (9000, 0, 0.26)),
    ),
    "b/g4dn.xlarge/spot": (
        *((0, None, None), (1700, 2, 0.25), (3600, 0, 0.25)),
        *((5300, 2, 0.25), (7200, 0, 0.25), (8900, 2, 0.25), (10_800, 1, 0.25)),
    ),
    "c/g4dn.xlarge/spot": ((0, None, None), (10_700, 2, 0.24)),
}


def training(slowly: Path, output: Path) -> list[str]:
    return [
        *(str(ROOT / "tests" / "support" / "slowed_training.py"), str(PACE_S), str(slowly)),
        *("--steps", str(STEPS), "--batch", "4", "--output", str(output)),
    ]


def undisturbed(place: Place, command: list[str]) -> None:
    """The same job in one process: exact mode owes it the same bits."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=place.folder,
        env=variables(**place.environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def reclaimed(place: Place) -> set[datetime]:
    ends = place.of(ev.NodeEnded)
    return {end.ended_at for end in ends if end.cause is EndCause.INTERRUPTED}


def volume_micros(node: ev.NodeLaunched) -> int:
    """Micro-dollars per hour of a node's root volume."""
    assert node.volume_micros_per_hour is not None
    return node.volume_micros_per_hour


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_the_main_job_ends_in_time_with_the_same_weights(tmp_path: Path) -> None:
    slowly = tmp_path / "slowly"
    place = Place(tmp_path, nodes=2, steps=STEPS)
    place.run = ["python", *training(slowly, tmp_path / "broken")]
    place.write(HARSH | UNINTERRUPTIBLE)
    slowly.touch()
    with place.controlled() as process:
        wait_until(lambda: len(reclaimed(place)) >= 3, "breaking of the gang at three times")
        wait_until(lambda: len(place.of(ev.GangFormed)) >= 4, "the gang after these")
        slowly.unlink()
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert place.processes() == []
    undisturbed(place, training(slowly, tmp_path / "whole"))
    assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()

    (finished,) = place.of(ev.JobFinished)
    assert finished.units == STEPS
    assert finished.at <= place.of(ev.JobSubmitted)[0].deadline_at

    ends = place.of(ev.NodeEnded)
    launched = {node.node_id: node for node in place.of(ev.NodeLaunched)}
    assert {end.node_id for end in ends} == launched.keys(), "no node lives on"
    micros = sum(
        (end.ended_at - launched[end.node_id].launched_at).total_seconds()
        / 3600
        * (launched[end.node_id].micros_per_hour + volume_micros(launched[end.node_id]))
        for end in ends
    )
    assert place.status()["usd_micros"] == pytest.approx(micros, abs=2 * len(ends))

    report = place.call("report", "tiny", "--state-dir", "state", "-o", "html")
    assert report.returncode == 0, report.stderr
    assert "</html>" in report.stdout
