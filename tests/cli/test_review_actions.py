"""The GitHub Action and the GitLab component, by running their own steps in a local repository.

The steps are bash; a server on loopback has the comment API. What the runners do around them
(expressions, outputs, the checkout) is done here as documented.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.forked_commands import costopt_program
from tests.support.job_changes import Repository, job
from tests.support.review_servers import INVALID, NO_RIGHT, ReviewServer, review_server

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
SPEC, COMPONENT = yaml.safe_load_all((ROOT / "templates/what-if.yml").read_text("utf-8"))
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
GITLAB_INPUT = re.compile(r"\$\[\[\s*inputs\.([\w-]+)\s*\]\]")


@dataclass
class Ran:
    """A finished job: the exit code of its first failed step, what it printed and wrote."""

    exit_code: int
    log: str
    outputs: dict[str, str]
    summary: str


@dataclass
class Runner:
    """A runner in the working folder of a repository, on a machine that has costopt."""

    repository: Repository
    server: ReviewServer
    folder: Path
    costopt: Path

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """What a step sees: no setting of costopt, and costopt on the PATH."""
        own = {
            "PATH": f"{self.costopt.parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}",
        }
        return own | dict(more)

    def github(self, number: int | None = 7, **inputs: str) -> Ran:
        """Run the Action on a pull request of the branch main; ``_`` stands for ``-``."""
        event = self.folder / "event.json"
        base = self.repository.git("rev-parse", "main")
        pull = {"pull_request": {"number": number, "base": {"sha": base}}} if number else {}
        event.write_text(json.dumps(pull))
        context = {
            "github.event.pull_request.base.sha": base if number else "",
            "github.token": "ghs_token",
            "github.action_path": str(ROOT),
        }
        given = {"install": "false", "market": "sample"}
        given |= {name.replace("_", "-"): text for name, text in inputs.items()}
        assert given.keys() <= ACTION["inputs"].keys()
        for name, declared in ACTION["inputs"].items():
            context[f"inputs.{name}"] = given.get(name, _evaluated(declared["default"], context))
        files = {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        own = {
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_API_URL": self.server.url,
            "GITHUB_EVENT_PATH": str(event),
            "RUNNER_TEMP": str(self.folder),
            **{name: str(file) for name, file in files.items()},
        }
        code, log = 0, ""
        for step in ACTION["runs"]["steps"]:
            if step.get("if") == "${{ inputs.install == 'true' }}":
                continue
            assert "if" not in step
            named = {key: _evaluated(text, context) for key, text in step["env"].items()}
            done = self._bash(
                step["run"], own | named, _evaluated(step["working-directory"], context)
            )
            code, log = code or done.returncode, log + done.stdout
        outputs = dict(
            line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines()
        )
        return Ran(code, log, outputs, files["GITHUB_STEP_SUMMARY"].read_text())

    def gitlab(self, token: str = "glpat", **inputs: str) -> Ran:
        """Run the component's script in a merge request pipeline of the branch main."""
        given = {"market": "sample"} | {k.replace("_", "-"): v for k, v in inputs.items()}
        declared = SPEC["spec"]["inputs"]
        values = {name: given.get(name, str(row["default"])) for name, row in declared.items()}
        (body,) = COMPONENT.values()
        own = {
            "CI_API_V4_URL": f"{self.server.url}/api/v4",
            "CI_PROJECT_ID": "42",
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": self.repository.git("rev-parse", "main"),
            "GITLAB_TOKEN": token,
        }
        for name, text in body["variables"].items():
            own[name] = GITLAB_INPUT.sub(lambda found: values[found[1]], text)
        done = self._bash("\n".join(body["script"]), own, ".")
        return Ran(done.returncode, done.stdout, {}, "")

    def _bash(
        self, script: str, more: Mapping[str, str], folder: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.repository.root / folder,
            env=self.environment(more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )


def _evaluated(text: object, context: Mapping[str, str]) -> str:
    """A value with its expressions replaced by what they name in the context."""
    return EXPRESSION.sub(lambda found: context[found[1]], str(text))


@pytest.fixture(scope="module")
def costopt() -> Iterator[Path]:
    with costopt_program() as program:
        yield program


@pytest.fixture
def runner(tmp_path: Path, costopt: Path) -> Iterator[Runner]:
    """A checkout of a change that doubles a job, and its review server."""
    origin = Repository(tmp_path / "origin")
    repository = Repository.__new__(Repository)
    repository.root = tmp_path / "checkout"
    subprocess.run(
        ["git", "clone", "--quiet", f"file://{origin.root}", str(repository.root)], check=True
    )
    repository.write("jobs/a.yaml", job(amount="2.0e+9"))
    with review_server() as server:
        yield Runner(repository, server, tmp_path, costopt)


def test_no_input_is_part_of_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    (body,) = COMPONENT.values()
    assert not any("$[[" in line for line in (*body["script"], *body["before_script"]))


def test_inputs_are_described_and_have_defaults() -> None:
    for each in (*ACTION["inputs"].values(), *SPEC["spec"]["inputs"].values()):
        assert each["description"]
        assert "default" in each
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text("utf-8")))
    assert used == ACTION["inputs"].keys()


def test_a_change_is_commented_and_the_comment_edited(runner: Runner) -> None:
    first = runner.github()
    assert first.exit_code == 0, first.log
    (text,) = runner.server.bodies
    assert text.startswith("<!-- costopt-diff ")
    assert "| `jobs/a.yaml` | $" in text
    assert first.summary == text
    assert first.outputs["changed"] == "true"
    assert first.outputs["over"] == "false"
    assert float(first.outputs["usd-after"]) > float(first.outputs["usd-before"]) > 0
    assert {
        name.split(".")[-1] for name in re.findall(r"steps\.diff\.outputs\.[\w-]+", str(ACTION))
    } == first.outputs.keys()
    runner.repository.write("jobs/a.yaml", job(amount="3.0e+9"))
    second = runner.github()
    assert runner.server.bodies == [second.summary]
    assert second.summary != text
    assert "ghs_token" not in first.log + second.log


def test_the_newest_of_our_comments_is_found_on_a_later_page(runner: Runner) -> None:
    tag = runner.github().summary.splitlines()[0]
    runner.server.comments.clear()
    for body in ("hello", f"{tag}\nolder", "text", f"{tag}\nnewer", "more"):
        runner.server.write(body)
    runner.server.write(f"{tag}\nforged", "stranger", "User")
    done = runner.github()
    assert runner.server.bodies[3] == done.summary
    assert runner.server.bodies[1] == f"{tag}\nolder"
    assert runner.server.bodies[5] == f"{tag}\nforged"


@pytest.mark.parametrize(("status", "body"), [(403, NO_RIGHT), (422, INVALID), (500, {})])
def test_without_the_right_to_comment_the_summary_has_it(
    runner: Runner, status: int, body: dict[str, Any]
) -> None:
    runner.server.refuse["POST"] = status, body
    done = runner.github()
    assert done.exit_code == 0, done.log
    assert runner.server.bodies == []
    assert "| `jobs/a.yaml` | $" in done.summary
    assert f"no comment: 127.0.0.1 refused the comment: {status}" in done.log


def test_a_redirect_does_not_receive_the_token(runner: Runner) -> None:
    with review_server() as elsewhere:
        runner.server.location = f"{elsewhere.url}/repos/o/r/issues/7/comments?page=1"
        done = runner.github()
    assert done.exit_code == 0
    assert elsewhere.requests == []


def test_a_deleted_comment_is_written_again(runner: Runner) -> None:
    runner.github()
    runner.server.refuse["PATCH"] = 404, {"message": "Not Found", "status": "404"}
    runner.github()
    assert len(runner.server.bodies) == 2


def test_limits_fail_the_step_after_the_comment(runner: Runner) -> None:
    done = runner.github(max_increase_usd="10%")
    assert done.exit_code == 4, done.log
    assert done.outputs["over"] == "true"
    assert "❌" in runner.server.bodies[0]
    runner.repository.write("jobs/a.yaml", job(deadline="1h"))
    assert runner.github(fail_on_missed_deadline="true").exit_code == 3
    assert runner.github().exit_code == 0


@pytest.mark.parametrize(
    ("comment", "comment_if", "amount", "comments"),
    [
        ("update", "changed", "1.0e+9", 0),
        ("update", "always", "1.0e+9", 1),
        ("update", "over", "1.1e+9", 0),
        ("new", "changed", "1.1e+9", 2),
        ("off", "always", "1.1e+9", 0),
    ],
)
def test_when_it_comments(
    runner: Runner, comment: str, comment_if: str, amount: str, comments: int
) -> None:
    runner.repository.write("jobs/a.yaml", job(amount=amount))
    for _ in range(2):
        done = runner.github(comment=comment, comment_if=comment_if, max_increase_usd="90%")
        assert done.exit_code == 0, done.log
    assert len(runner.server.bodies) == comments


def test_a_comment_that_no_longer_holds_is_updated(runner: Runner) -> None:
    runner.github()
    runner.repository.write("jobs/a.yaml", job())
    done = runner.github()
    assert "no job changes" in runner.server.bodies[0]
    assert done.outputs["changed"] == "false"


@pytest.mark.parametrize(
    "jobs", ["$(touch pwned)", "; touch pwned", "`touch pwned`", "jobs/*.yaml' ; touch pwned '"]
)
def test_inputs_are_not_run(runner: Runner, jobs: str) -> None:
    assert runner.github(jobs=jobs).exit_code == 2
    assert not (runner.repository.root / "pwned").exists()


def test_a_configuration_file_of_the_change_sets_nothing(runner: Runner) -> None:
    runner.repository.write(
        "costopt.toml", '[diff]\npolicy = "on-demand"\nmarket = "/etc/passwd"\n'
    )
    done = runner.github(market="sample")
    assert done.exit_code == 0, done.log
    assert "`cheapest`" in done.summary


def test_a_shallow_checkout_fetches_the_base(runner: Runner, tmp_path: Path) -> None:
    base = runner.repository.git("rev-parse", "main")
    change = runner.repository.commit()
    runner.repository.git("push", "--quiet", "origin", f"{change}:refs/heads/change")
    shallow = tmp_path / "shallow"
    url = runner.repository.git("remote", "get-url", "origin")
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", "--branch=change", url, str(shallow)], check=True
    )
    runner.repository.root = shallow
    runner.repository.git("branch", "--quiet", "main")
    assert runner.repository.git("rev-parse", "main") != base
    done = runner.github(base=base)
    assert done.exit_code == 0, done.log
    assert done.outputs["changed"] == "true"


def test_outside_a_pull_request_it_says_so(runner: Runner) -> None:
    assert runner.github(number=None).exit_code == 2
    done = runner.github(number=None, base="main")
    assert done.exit_code == 0, done.log
    assert "| `jobs/a.yaml` | $" in done.summary
    assert runner.server.requests == []


def test_gitlab_notes_are_written_and_edited(runner: Runner) -> None:
    first = runner.gitlab()
    assert first.exit_code == 0, first.log
    (text,) = runner.server.bodies
    runner.repository.write("jobs/a.yaml", job(amount="3.0e+9"))
    assert runner.gitlab(max_increase_usd="10%").exit_code == 4
    assert len(runner.server.bodies) == 1
    assert runner.server.bodies != [text]
    assert "glpat" not in first.log


def test_gitlab_without_a_token_has_the_report_in_its_log(runner: Runner) -> None:
    done = runner.gitlab(token="")
    assert done.exit_code == 0, done.log
    assert "GITLAB_TOKEN is not set" in done.log
    assert "jobs/a.yaml" in done.log
    assert runner.server.requests == []


def test_a_note_of_another_user_is_left_alone(runner: Runner) -> None:
    runner.gitlab()
    tag = runner.server.bodies[0].splitlines()[0]
    runner.server.comments.clear()
    runner.server.write(f"{tag}\nforged", "stranger", "User")
    runner.gitlab()
    assert runner.server.bodies[0] == f"{tag}\nforged"
    assert len(runner.server.bodies) == 2
