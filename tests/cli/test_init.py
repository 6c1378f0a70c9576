"""init writes a job file that works as it is, and never touches one that exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import invoke


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_a_commented_job_that_plans_on_the_sample_market(folder: Path) -> None:
    done = invoke("init")
    assert (done.exit_code, done.stdout) == (0, "")
    text = (folder / "job.yaml").read_text("utf-8")
    assert text.count("#") > 10
    assert invoke("validate", "job.yaml").exit_code == 0
    planned = invoke("plan", "job.yaml", "--market", "sample", "--output", "json")
    assert json.loads(planned.stdout)["status"] in ("optimal", "feasible")


def test_it_creates_the_folder(folder: Path) -> None:
    assert invoke("init", "a/b").exit_code == 0
    assert (folder / "a/b/job.yaml").is_file()


def test_it_overwrites_nothing(folder: Path) -> None:
    (folder / "job.yaml").write_text("mine")
    assert invoke("init").exit_code == 2
    assert (folder / "job.yaml").read_text() == "mine"
    (folder / "job.yaml").unlink()
    (folder / "job.yaml").symlink_to(folder / "elsewhere")
    assert invoke("init").exit_code == 2
    assert not (folder / "elsewhere").exists()


def test_a_file_in_the_folders_place_is_named(folder: Path) -> None:
    (folder / "work").write_text("")
    done = invoke("init", "work/here")
    assert done.exit_code == 2
    assert "work" in done.stderr
    assert "Traceback" not in done.stderr
    assert invoke("init", "work").exit_code == 2
