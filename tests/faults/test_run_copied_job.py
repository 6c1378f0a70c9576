"""A copied job file with another name takes over nothing; the same job resumes from anywhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from costopt.checkpoint.repository import CheckpointRepository
from costopt.domain import events as ev
from tests.support.live_run import Place, no_traceback
from tests.support.node_folder import ROOT

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
