"""A script that knows nothing of costopt is reported by SIGTERM, and goes on where it saved."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from costopt.ledger.job_account import JobAccount
from tests.support.known_figure import known
from tests.support.live_run import UNINTERRUPTIBLE, Place
from tests.support.node_folder import ROOT

pytestmark = pytest.mark.exhaustive("jobs on simulated nodes")

EXAMPLE = ROOT / "examples" / "own_checkpoints" / "train.py"
NOTICE_S = 1500
# Twice, since a slow machine may miss the first: it trains for longer than between two notices.
TAKEN = {
    "a/g4dn.xlarge/spot": (
        *((0, 1, 0.05), (3000, 0, 0.05), (3300, 1, 0.05)),
        *((6300, 0, 0.05), (6600, 1, 0.05)),
    )
}
STEPS = 300


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_it_is_interrupted_and_loses_nothing(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        steps=STEPS,
        run=["python", "train.py", "--steps", str(STEPS), "--pace", "0.02", "--output", "saves"],
    )
    place.write(TAKEN | UNINTERRUPTIBLE)
    shutil.copy(EXAMPLE, tmp_path)
    run = place.finish("--notice", str(NOTICE_S))
    assert run.returncode == 0, run.stderr
    assert EndCause.INTERRUPTED in [event.cause for event in place.of(ev.NodeEnded)]
    (finished,) = place.of(ev.JobFinished)
    assert finished.units == STEPS
    logs = sorted(place.state.rglob("trainer-*.log"), key=lambda log: log.stat().st_mtime)
    said = "".join(log.read_text() for log in logs)
    assert "on SIGTERM" in said, "the notice reached the script"
    done = "0"
    for begins_at, saved in re.findall(r"starting at step (\d+)|saved step (\d+)", said):
        assert begins_at in ("", done), "no step was done twice"
        done = saved or done
    model = json.loads((place.saves / "model.json").read_text())
    assert model["step"] == STEPS
    assert place.processes() == []
    assert_training_was_counted(place)


def assert_training_was_counted(place: Place) -> None:
    """Nodes draw busy power while the script runs, though it says nothing of how far it is."""
    assert all(event.units is None for event in place.of(ev.TrainingStarted))
    account = JobAccount("tiny")
    for event in place.of(ev.Event):
        account.apply(event)
    (finished,) = place.of(ev.JobFinished)
    rows = account.intervals(finished.at)
    interrupted = [row for row in rows if row.cause is EndCause.INTERRUPTED]
    # Each ran for 30 minutes or more, of which start-up and restore take five.
    assert all(known(row.busy_wh) > known(row.idle_wh) for row in interrupted)
