"""The files around the code: workflows, templates, addresses of the project, its citation."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from costopt import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONS = [ROOT / "action.yml", *(ROOT / ".github/actions").glob("*/action.yml")]
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
WRITES = {
    ("pages.yml", "deploy"): {"pages": "write", "id-token": "write"},
    ("release.yml", "publish"): {"id-token": "write"},
    ("release.yml", "release"): {"contents": "write"},
}
"""Every job that may write, and what."""


def read(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(document, dict)
    return document


def steps(path: Path) -> Iterator[Mapping[str, Any]]:
    document = read(path)
    for job in document.get("jobs", {"action": document.get("runs")}).values():
        yield from job["steps"]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_workflows_read_unless_a_job_must_write(path: Path) -> None:
    document = read(path)
    assert document["permissions"] == {"contents": "read"}
    for name, job in document["jobs"].items():
        assert job.get("permissions") == WRITES.get((path.name, name)), name
        assert job["timeout-minutes"] <= 90, name


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=named)
def test_steps_use_pinned_actions_and_plain_scripts(path: Path) -> None:
    text = path.read_text("utf-8")
    for step in steps(path):
        used = step.get("uses", "./")
        assert used.startswith("./") or PINNED.fullmatch(used), used
        assert used.startswith("./") or re.search(rf"{used}  # v\d+\.\d+\.\d+\n", text), used
        if used.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        script = re.sub(r"\$\{\{ matrix\.[a-z]+ \}\}", "", step.get("name", ""))
        assert "${{" not in step.get("run", "") + script


def test_workflows_call_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    called = {
        word
        for path in WORKFLOWS
        for step in steps(path)
        for line in step.get("run", "").splitlines()
        if line.startswith("make ") and "$" not in line
        for word in line.split()[1:]
    }
    scheduled = read(ROOT / ".github/workflows/scheduled.yml")["jobs"]["audit"]
    called |= set(scheduled["strategy"]["matrix"]["target"])
    assert {"check", "quick", "wheel", "sbom", "docs", "audit"} <= called <= targets


def test_classifiers_name_versions_that_are_tested() -> None:
    quick = read(ROOT / ".github/workflows/ci.yml")["jobs"]["quick"]
    tested = set(quick["strategy"]["matrix"]["python"])
    claimed = set(re.findall(r":: (3\.\d+)", " ".join(PROJECT["classifiers"])))
    assert {"3.11", "3.12", "3.13"} <= claimed <= tested


def test_addresses_agree() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: which files belong to the project is not known")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    repository = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
    found = {
        (name, hit)
        for name in listed
        if (ROOT / name).is_file() and not name.endswith(".png")
        for hit in re.findall(
            r"(?:github|githubusercontent)\.com/(costopt/[\w.-]+)",
            (ROOT / name).read_text("utf-8", errors="replace"),
        )
    }
    assert {hit for _, hit in found} == {repository}, found
    assert set(PROJECT["urls"]) >= {"Homepage", "Documentation", "Repository", "Changelog"}


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == __version__ == PROJECT["version"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert citation["license"] == PROJECT["license"]


def test_owned_paths_exist() -> None:
    for line in (ROOT / ".github/CODEOWNERS").read_text("utf-8").splitlines():
        if line.startswith("/"):
            assert (ROOT / line.split()[0].strip("/")).exists(), line


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms_have_what_github_requires(name: str) -> None:
    form = read(ROOT / f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(part["attributes"]["label"] for part in form["body"])
