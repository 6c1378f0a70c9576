"""The main job: a market that takes nodes three times changes no bit of the weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from tests.live_run import FIRM, Place
from tests.node_folder import ROOT, variables

EXAMPLE = ROOT / "examples" / "finetune"
STEPS = 80
PACE_S = 0.12

# Two nodes are taken, two again, then one of two. By the wall, at 6, 12 and 18 s: the training
# alone lasts 10 s, and each start of the gang several more.
HARSH = {
    "a/g4dn.xlarge/spot": ((0, 2, 0.26), (1800, 0, 0.26)),
    "b/g4dn.xlarge/spot": ((0, None, None), (1700, 2, 0.25), (3600, 0, 0.25)),
    "c/g4dn.xlarge/spot": ((0, None, None), (3500, 2, 0.24), (5400, 1, 0.24)),
    "d/g4dn.xlarge/spot": ((0, None, None), (5300, 2, 0.23)),
}


def script(folder: Path) -> Path:
    """The example's training script, slowed down where the first argument says so."""
    path = folder / "paced.py"
    path.write_text(
        "import runpy, sys, time\n"
        "from costopt.train.loop import TrainingLoop\n"
        f"sys.path.insert(0, {str(EXAMPLE)!r})\n"
        "pace_s, apply = float(sys.argv.pop(1)), TrainingLoop.apply\n"
        "TrainingLoop.apply = lambda loop: (time.sleep(pace_s), apply(loop))[1]\n"
        f"runpy.run_path({str(EXAMPLE / 'train.py')!r}, run_name='__main__')\n"
    )
    return path


def undisturbed(place: Place, script: Path) -> None:
    """The same job in one process: exact mode owes it the same bits."""
    done = subprocess.run(
        [
            *(sys.executable, str(script), "0", "--steps", str(STEPS)),
            *("--batch", "4", "--output", str(place.folder / "whole")),
        ],
        cwd=place.folder,
        env=variables(**place.environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_the_main_job_ends_in_time_with_the_same_weights(tmp_path: Path) -> None:
    place = Place(tmp_path, nodes=2, steps=STEPS, deadline="12h")
    paced = script(tmp_path)
    place.run = [
        *("python", str(paced), str(PACE_S), "--steps", str(STEPS)),
        *("--batch", "4", "--output", str(tmp_path / "broken")),
    ]
    place.write(HARSH | FIRM)
    try:
        run = place.finish(timeout_s=150)
        assert run.returncode == 0, run.stderr
    finally:
        place.clear()
    undisturbed(place, paced)
    assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()

    ends = place.of(ev.NodeEnded)
    strikes = {e.ended_at for e in ends if e.cause is EndCause.INTERRUPTED}
    assert len(strikes) >= 3, "the gang was broken at three times"
    assert len(place.of(ev.GangFormed)) >= 4
    (finished,) = place.of(ev.JobFinished)
    assert finished.units == STEPS
    assert finished.at <= place.of(ev.JobSubmitted)[0].deadline_at

    launched = {node.node_id: node for node in place.of(ev.NodeLaunched)}
    assert {end.node_id for end in ends} == launched.keys(), "no node lives on"
    assert place.processes() == []
    micros = sum(
        (end.ended_at - launched[end.node_id].launched_at).total_seconds()
        / 3600
        * launched[end.node_id].micros_per_hour
        for end in ends
    )
    assert place.status()["usd_micros"] == pytest.approx(micros, abs=len(ends))

    report = place.call("report", "tiny", "--state-dir", "state", "--to", "report.html")
    assert report.returncode == 0, report.stderr
    assert "</html>" in (tmp_path / "report.html").read_text()
