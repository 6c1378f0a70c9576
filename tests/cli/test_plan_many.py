"""costopt plan and what-if of several jobs, of folders, and beside a daemon's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.command_line import invoke

JOB = """\
name: NAME
work: {amount: 360000, unit: samples}
deadline: 8h
resources: {gpu_models: [T4], min_gpus: 1, max_gpus: 1}
throughput: {points: [{gpu: T4, units_per_s: 30}]}
checkpoint: {uri: checkpoints/NAME, save: 10s}
"""


pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three jobs, and an account and a note beside them."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.yaml").write_text(JOB.replace("NAME", name))
    (tmp_path / "account.yaml").write_text("quotas: [{name: one, max_nodes: 1}]\n")
    (tmp_path / "notes.txt").write_text("not a job")
    return tmp_path


def result(done: Result) -> dict[str, Any]:
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_folder_is_its_jobs_planned_together(folder: Path) -> None:
    done = invoke("plan", folder, "-o", "json")
    assert done.exit_code == 0, done.stderr
    found = result(done)
    assert found["schema"] == "costopt.account-plan/1"
    assert [row["job"] for row in found["rows"]] == ["a", "b", "c"]
    assert found["totals"]["served"] == 3


def test_what_a_folder_holds_beside_jobs_is_named_and_how_to_use_it(folder: Path) -> None:
    done = invoke("plan", folder)
    said = " ".join(done.stderr.split())
    assert f"account.yaml (--account {folder / 'account.yaml'} uses it)" in said
    assert "notes.txt" not in said


def test_a_folder_is_checked_file_by_file(folder: Path) -> None:
    (folder / "wrong.yml").write_text("name: x\nwork: 3\n")
    done = invoke("validate", folder)
    assert done.exit_code == 2
    assert f"{folder / 'account.yaml'}: a valid account" in done.stdout
    assert done.stdout.count("a valid job") == 3
    assert "wrong.yml" in done.stderr


def test_how_times_were_read_is_said_where_jobs_share_a_table(folder: Path) -> None:
    path = folder / "b.yaml"
    path.write_text(f"{path.read_text()}schedule: {{cron: '0 2 * * *'}}\n")
    assert "b: schedule: the next occurrence is at" in " ".join(
        invoke("plan", folder).stderr.split()
    )


def test_who_is_not_served_ends_with_3_and_what_would_help(folder: Path) -> None:
    done = invoke("plan", folder, "--account", folder / "account.yaml")
    assert done.exit_code == 3
    assert "Not served: c: quota one: needs 1 of 1 nodes" in " ".join(done.stdout.split())
    assert "raise quota one from 1 to 2" in done.stdout
    assert "no plan of all 3 jobs serves c" in done.stderr


def test_a_folder_of_one_job_prints_what_the_file_prints(folder: Path) -> None:
    for name in ("b", "c"):
        (folder / f"{name}.yaml").unlink()
    found = [result(invoke("plan", each, "-o", "json")) for each in (folder, folder / "a.yaml")]
    assert {each["schema"] for each in found} == {"costopt.plan/1"}
    assert len({tuple(row["pool"] for row in each["rows"]) for each in found}) == 1


def test_what_if_of_several_jobs_gives_totals(folder: Path) -> None:
    files = [folder / f"{name}.yaml" for name in ("a", "b", "c")]
    options = ("--policies", "cheapest,on-demand", "--deadlines", "8h,16h", "-o", "json")
    done = invoke("what-if", *files, "--account", folder / "account.yaml", *options)
    assert done.exit_code == 0, done.stderr
    found = result(done)
    assert found["schema"] == "costopt.account-what-if/1"
    assert [row["served"] for row in found["rows"]] == [2, 3, 2, 3]
    late = invoke("what-if", *files, "--account", folder / "account.yaml", "--deadlines", "8h")
    assert late.exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("plan", "a.yaml", "copy.yaml"), 2, "2 of the jobs are named 'a'"),
        (("plan", "empty"), 2, "there is no job file in empty"),
        (("plan", "broken"), 2, "expected a valid number"),
        (("plan", "a.yaml", "b.yaml", "--server", "unix:x"), 2, "one new job at a time"),
        (("plan", "a.yaml", "--server", "unix:x", "--market", "sample"), 2, "does not go with"),
        (("plan", "a.yaml", "--server", "unix:x"), 1, "no daemon answers"),
        (("what-if", "a.yaml", "b.yaml", "--tolerance", "5%"), 2, "is for one job"),
        (("plan", "a.yaml", "b.yaml", "--explain"), 2, "--explain is for one job"),
    ],
)
def test_what_does_not_go_together_is_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(folder)
    (folder / "copy.yaml").write_text((folder / "a.yaml").read_text())
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "d.yaml").write_text(JOB.replace("360000", "many"))
    done = invoke(*arguments)
    assert done.exit_code == code, done.stderr
    assert said in " ".join(done.stderr.split())
