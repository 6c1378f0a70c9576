"""Status, events and report of a run from another process, and a copied job file."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from costopt.checkpoint.repository import CheckpointRepository
from costopt.domain import events as ev
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import PATIENCE_S, Place, no_traceback, wait_until
from tests.support.node_folder import ROOT


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
    reported = place.call("report", "tiny", "--state-dir", "state", "-o", "html")
    assert reported.returncode == 0, reported.stderr
    assert "</html>" in reported.stdout


@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
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


@pytest.mark.exhaustive("jobs on simulated nodes")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
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


TRAINER = ROOT / "tests" / "support" / "committing_trainer.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_run_compares_the_place_with_the_job(tmp_path: Path) -> None:
    place = Place(tmp_path, steps=5, run=["sh", "-c", f"exec {sys.executable} {TRAINER} 5"])
    place.write()
    done = place.finish()
    assert done.returncode == 0, done.stderr
    head = CheckpointRepository.open(str(place.saves)).head()
    assert head is not None
    assert head.identity is not None
    assert (head.identity.tenant, head.identity.name) == ("default", "tiny")

    copied = tmp_path / "copied.yaml"
    copied.write_text((tmp_path / "job.yaml").read_text().replace("name: tiny", "name: copied"))
    run = [word.replace("job.yaml", "copied.yaml") for word in place.run_command()[2:]]
    for words in (run, [word for word in run if word != "--apply"]):
        refused = place.call(*words, "--state-dir", "fresh")
        assert refused.returncode == 2, refused.stderr
        assert "'tiny'" in refused.stderr
        assert "'copied'" in refused.stderr
        assert "checkpoints branch" in refused.stderr
        assert no_traceback(refused.stderr)
    shown = place.call("events", "copied", "--state-dir", "fresh", "--output", "json")
    assert "NodeLaunched" not in shown.stdout
    listed = place.call("checkpoints", "list", "copied.yaml")
    assert listed.returncode == 1, listed.stdout

    assert (tmp_path / "begins").read_text().split() == ["tiny", "0"]
    again = place.finish("--state-dir", "again")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "begins").read_text().split() == ["tiny", "0", "tiny", "5"]

    copied.write_text(copied.read_text().replace("uri: saves", "uri: own"))
    (newest, *_) = CheckpointRepository.open(str(place.saves)).names()
    branched = place.call("checkpoints", "branch", "job.yaml", str(newest), "copied.yaml")
    assert branched.returncode == 0, branched.stderr
    started = place.call(*run, "--state-dir", "fresh")
    assert started.returncode == 0, started.stderr
    assert (tmp_path / "begins").read_text().split()[-2:] == ["copied", "5"]
    rows = json.loads(place.call("checkpoints", "list", "copied.yaml", "-o", "json").stdout)["rows"]
    assert {row["job"] for row in rows} == {"copied"}
    assert place.of(ev.JobFinished)
