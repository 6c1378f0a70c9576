"""Status, events and report of a run from another process, while it goes on and afterwards."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import PATIENCE_S, Place, no_traceback, wait_until

pytestmark = [
    pytest.mark.exhaustive("jobs on simulated nodes"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


def look(place: Place) -> None:
    """Every command in every format that programs read."""
    for command in (("status",), ("status", "tiny"), ("events", "tiny")):
        reported = place.call(*command, "--state-dir", "state", "--output", "json")
        assert reported.returncode == 0, reported.stderr
        document = json.loads(reported.stdout)
        assert document["schema"].startswith("costopt.")
        assert all(row["job"] == "tiny" for row in document["rows"])
        assert reported.stderr == ""
        reported = place.call(*command, "--state-dir", "state", "--output", "csv")
        rows = list(csv.DictReader(io.StringIO(reported.stdout)))
        assert len(rows) >= len(document["rows"])
        assert all(None not in row and None not in row.values() for row in rows)
    reported = place.call("report", "tiny", "--state-dir", "state", "--to", "report.html")
    assert reported.returncode == 0, reported.stderr
    assert "</html>" in (place.folder / "report.html").read_text()


def test_a_run_is_looked_at_from_elsewhere(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    hold(place.saves, 40)
    with place.controlled() as process:
        wait_until(lambda: bool(place.of(ev.CheckpointCommitted)), "checkpoint")
        running = place.status()
        look(place)
        assert process.poll() is None
        assert running["state"] == "training"
        assert running["nodes_alive"] == 1
        let_go(place.saves)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    look(place)
    ended = place.status()
    assert ended["state"] == "finished"
    assert ended["usd_micros"] > running["usd_micros"] > 0


@pytest.mark.parametrize("command", ["status", "events", "report"])
def test_a_job_that_has_not_run(tmp_path: Path, command: str) -> None:
    place = Place(tmp_path, steps=2).write()
    nothing = place.call(command, "tiny", "--state-dir", "state")
    assert nothing.returncode == 1
    assert "nothing has run in state" in nothing.stderr
    place.finish()
    other = place.call(command, "other", "--state-dir", "state")
    assert other.returncode == 1
    assert "no job 'other' has run in state" in other.stderr
    assert "→ jobs there: tiny" in other.stderr
    assert no_traceback(nothing.stderr + other.stderr)
