"""`costopt diff`: what a change of job, policy and account files costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from tests.support.job_changes import Repository, job


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path / "repository")
    monkeypatch.chdir(made.root)
    return made


def diff(*arguments: str, output: str = "json") -> Result:
    command = ["diff", *arguments, "--market", "sample", "--output", output]
    return CliRunner().invoke(cli, command)


def run_diff(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    done = diff(*arguments)
    assert done.exit_code == exit_code, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_changed_job_is_planned_before_and_after(repository: Repository) -> None:
    repository.write("jobs/a.yaml", job(amount="2.0e+9"))
    result = run_diff("main")
    (row,) = result["rows"]
    assert (row["path"], row["change"], row["name"]) == ("jobs/a.yaml", "changed", "small")
    assert 0 < row["usd_before"] < row["usd_after"]
    assert result["totals"]["usd"] == {"before": row["usd_before"], "after": row["usd_after"]}
    assert row["kwh_after"] > row["kwh_before"]
    assert row["gco2e_after"] > row["gco2e_before"]


def test_new_and_removed_jobs_count_and_unchanged_ones_do_not(repository: Repository) -> None:
    repository.write("jobs/deep/er/b.yaml", job("other"))
    repository.commit()
    repository.write("jobs/c.yaml", job("new"))
    (repository.root / "jobs/deep/er/b.yaml").unlink()
    result = run_diff("HEAD")
    rows = {row["path"]: row for row in result["rows"]}
    assert {path: row["change"] for path, row in rows.items()} == {
        "jobs/c.yaml": "added",
        "jobs/deep/er/b.yaml": "removed",
    }
    assert result["unchanged"] == 1
    assert rows["jobs/c.yaml"]["usd_before"] is None
    assert result["totals"]["usd"]["before"] == rows["jobs/deep/er/b.yaml"]["usd_before"]


def test_without_a_change_nothing_is_planned(repository: Repository) -> None:
    result = run_diff("main", "--max-increase-usd", "0")
    assert (result["rows"], result["unchanged"]) == ([], 1)


def test_two_folders_and_two_revisions_agree(repository: Repository, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    before = tmp_path / "before"
    repository.git("worktree", "add", "--quiet", str(before), first)
    repository.write("jobs/a.yaml", job(deadline="48h"))
    second = repository.commit()
    of_folders, of_revisions = run_diff(str(before), "."), run_diff(first, second)
    assert of_folders["rows"] == of_revisions["rows"]


def test_each_side_has_its_own_policy_and_account(repository: Repository) -> None:
    shipped = Path(__file__).parents[2] / "policies"
    repository.write("ours.yaml", (shipped / "cheapest.yaml").read_text())
    repository.write("account.yaml", "kind: account\nversion: 1\n")
    repository.commit()
    repository.write("ours.yaml", (shipped / "on-demand.yaml").read_text())
    (row,) = run_diff("main", "--policy", "ours.yaml", "--account", "account.yaml")["rows"]
    assert row["change"] == "settings"
    assert row["usd_after"] > row["usd_before"]


def test_a_policy_that_only_the_change_has_leaves_before_unknown(repository: Repository) -> None:
    shipped = Path(__file__).parents[2] / "policies"
    repository.write("ours.yaml", (shipped / "cheapest.yaml").read_text())
    (row,) = run_diff("main", "--policy", "ours.yaml")["rows"]
    assert row["usd_before"] is None
    assert row["usd_after"] > 0
    assert "ours.yaml" in row["problem"]


@pytest.mark.parametrize(
    ("limit", "exit_code"), [("1000000", 0), ("1", 4), ("300%", 0), ("10%", 4), ("$1", 4)]
)
def test_limits_of_the_increase(repository: Repository, limit: str, exit_code: int) -> None:
    repository.write("jobs/a.yaml", job(amount="2.0e+9"))
    result = run_diff("main", "--max-increase-usd", limit, exit_code=exit_code)
    assert bool(result["violations"]) == (exit_code == 4)


@pytest.mark.parametrize("option", ["--max-increase-kwh", "--max-increase-kgco2e"])
def test_energy_and_emissions_have_limits(repository: Repository, option: str) -> None:
    repository.write("jobs/a.yaml", job(amount="2.0e+9"))
    run_diff("main", option, "0.001", exit_code=4)
    run_diff("main", option, "100000")


def test_a_decrease_is_within_any_limit(repository: Repository) -> None:
    repository.write("jobs/a.yaml", job(amount="0.5e+9"))
    run_diff("main", "--max-increase-usd", "0", "--max-increase-kwh", "0%")


def test_a_share_of_nothing_is_exceeded_by_a_new_job(repository: Repository) -> None:
    repository.write("jobs/b.yaml", job("new"))
    run_diff("main", "--max-increase-usd", "50%", exit_code=4)
    run_diff("main", "--max-increase-usd", "10000")


def test_a_deadline_that_cannot_be_kept_fails_if_asked(repository: Repository) -> None:
    repository.write("jobs/a.yaml", job(deadline="1h"))
    result = run_diff("main")
    assert result["late"] == ["jobs/a.yaml"]
    assert result["rows"][0]["usd_after"] is None
    run_diff("main", "--fail-on-missed-deadline", exit_code=3)
    run_diff("main", "--max-increase-usd", "50%", exit_code=4)


def test_a_wrong_file_fails_and_is_named_as_in_the_tree(repository: Repository) -> None:
    repository.write("jobs/a.yaml", job().replace("deadline", "deadlin"))
    (row,) = run_diff("main", exit_code=2)["rows"]
    assert row["problem"].startswith("jobs/a.yaml:")
    assert str(repository.root) not in row["problem"]


def test_what_was_wrong_before_is_not_a_failure(repository: Repository) -> None:
    repository.write("jobs/a.yaml", "name: [")
    repository.commit()
    repository.write("jobs/a.yaml", job())
    (row,) = run_diff("HEAD", "--max-increase-usd", "1%")["rows"]
    assert (row["usd_before"], row["usd_after"] > 0) == (None, True)


def test_links_are_not_followed(repository: Repository, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("token: top-secret\n")
    (repository.root / "jobs/link.yaml").symlink_to(secret)
    (repository.root / "jobs/folder").symlink_to(tmp_path, target_is_directory=True)
    assert run_diff("main", "--jobs", "jobs/**/*.yaml")["rows"] == []
    linked = repository.commit()
    assert run_diff("main~1", linked)["rows"] == []
    (repository.root / "policy.yaml").symlink_to(secret)
    done = diff("main", "--policy", "policy.yaml")
    assert done.exit_code == 2
    assert "top-secret" not in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-branch",),
        ("main", "--jobs", "nothing/*.yaml"),
        ("main", "--jobs", "../*.yaml"),
        ("main", "--jobs", "/etc/*.yaml"),
        ("main", "--policy", "no-such-policy"),
        ("main", "--account", "../account.yaml"),
        ("main", "--max-increase-usd", "much"),
        ("main", "--max-increase-usd", "-1"),
        ("main", "--max-increase-usd", "nan"),
        ("--", "--upload-pack=false"),
    ],
)
def test_bad_arguments_are_refused(repository: Repository, arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, ["diff", "--market", "sample", *arguments])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""


def test_outside_a_repository_folders_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, amount in (("old", "1.0e+9"), ("new", "1.1e+9")):
        (tmp_path / name / "jobs").mkdir(parents=True)
        (tmp_path / name / "jobs/a.yaml").write_text(job(amount=amount))
    assert len(run_diff("old", "new")["rows"]) == 1
    assert diff("main").exit_code == 2


def test_markdown_is_the_comment(repository: Repository) -> None:
    repository.write("jobs/a.yaml", job(amount="2.0e+9"))
    text = diff("main", output="md").stdout
    assert text.startswith("<!-- costopt-diff ")
    assert "| `jobs/a.yaml` | $" in text
    assert " kWh → " in text
