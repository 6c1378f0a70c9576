"""costopt checkpoints, over checkpoints that were really committed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.repository import CheckpointRepository
from costopt.cli.main import cli
from tests.support.errors import failure

JOB = """\
name: char-gpt
work: {amount: 4e5, unit: steps}
deadline: 60h
resources: {gpu_models: [T4], max_nodes: 4}
throughput: {flops_per_unit: 1e13, mfu: 0.4}
checkpoint: {uri: checkpoints, save: 10s}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = CheckpointRepository.open(str(tmp_path / "checkpoints"))
    committer = Committer(place, 1)
    for step, loss in ((1, "0.25"), (2, "0.5"), (3, "0.75")):
        files = {"state.bin": memoryview(b"weights")}
        committer.commit(SaveRequest(step, 1, 0.0, files, (("loss", loss),)))
    return tmp_path


def asked(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["checkpoints", *map(str, arguments)])


def names(place: Path) -> list[str]:
    return [row["name"] for row in json.loads(asked("list", place, "-o", "json").stdout)["rows"]]


def test_list_names_the_newest_and_where_each_comes_from(folder: Path) -> None:
    result = asked("list", folder / "checkpoints", "-o", "json")
    assert result.exit_code == 0
    reported = json.loads(result.stdout)
    assert reported["schema"] == "costopt.checkpoints/1"
    assert [(row["step"], row["newest"]) for row in reported["rows"]] == [
        (3, True),
        (2, False),
        (1, False),
    ]
    assert reported["rows"][0]["parent"] == "step-000000002.1.0"
    assert reported["rows"][0]["labels"] == "loss 0.75"


def test_verify_exits_with_1_and_says_what_is_wrong(folder: Path) -> None:
    place = folder / "checkpoints"
    assert asked("verify", place).exit_code == 0
    (place / "step-000000002.1.0" / "state.bin").write_bytes(b"weighty")
    result = asked("verify", place)
    assert result.exit_code == 1
    assert re.search(r"step-000000002\.1\.0.*\b0\b.*\b7\b", result.stdout)
    assert asked("verify", place, "step-000000003.1.0").exit_code == 0


def test_tag_rollback_prune_and_branch(folder: Path) -> None:
    place = folder / "checkpoints"
    first, second, third = (f"step-00000000{step}.1.0" for step in (1, 2, 3))
    assert "good" in asked("tag", place, first, "good").stderr
    assert "generation 2" in asked("rollback", place, second).stderr
    assert asked("prune", place, "--last", "1").stdout == ""
    assert asked("tag", place, third, "before-rollback-2", "--remove").exit_code == 0
    reported = asked("prune", place, "--last", "1")
    assert (reported.stdout.split(), "add --apply" in reported.stderr) == ([third], True)
    assert names(place) == [third, second, first]
    asked("prune", place, "--last", "1", "--apply")
    assert names(place) == [second, first]
    assert asked("branch", place, first, folder / "other").exit_code == 0
    assert names(folder / "other") == [first]
    refused = asked("branch", place, first, folder / "other")
    assert (refused.exit_code, failure(refused).code) == (1, "not_empty")


def test_a_checkpoint_is_named_by_its_tag_as_well(folder: Path) -> None:
    place = folder / "checkpoints"
    first, second = (f"step-00000000{step}.1.0" for step in (1, 2))
    asked("tag", place, first, "good")
    asked("tag", place, second, "better")
    assert asked("tag", place, "good", "best").exit_code == 0
    assert asked("verify", place, "best").exit_code == 0
    assert first in asked("branch", place, "good", folder / "other").stderr
    assert names(folder / "other") == [first]
    assert second in asked("rollback", place, "better").stderr
    assert asked("rollback", place, "before-rollback-2").exit_code == 0
    assert asked("tag", place, "good", "best", "--remove").exit_code == 0
    for unknown in ("best", "no such", "../HEAD", "step-000000007.1.0"):
        assert asked("rollback", place, unknown).exit_code == 1
        assert asked("branch", place, unknown, folder / "new").exit_code == 1
        assert asked("verify", place, unknown).exit_code == 1
    assert not (folder / "new").exists()


def test_a_tag_is_never_taken_for_another_checkpoint(folder: Path) -> None:
    place = folder / "checkpoints"
    first, second = (f"step-00000000{step}.1.0" for step in (1, 2))
    refused = asked("tag", place, first, second)
    assert refused.exit_code == 1
    assert asked("branch", place, "step-2.1.0", folder / "other").exit_code == 0
    assert names(folder / "other") == [second]


def test_the_best_are_not_pruned(folder: Path) -> None:
    place = folder / "checkpoints"
    first, second = (f"step-00000000{step}.1.0" for step in (1, 2))
    assert asked("prune", place, "--last", "1", "--best", "1").stdout.split() == [second]
    reported = asked("prune", place, "--last", "1", "--best", "1", "--metric", "other")
    assert reported.stdout.split() == [second, first]


def test_a_job_is_named_by_its_file(folder: Path) -> None:
    path = folder / "job.yaml"
    path.write_text(JOB)
    assert asked("verify", path).exit_code == 0
    unknown = asked("list", "nobody", "--state-dir", folder / "state")
    assert (unknown.exit_code, failure(unknown).code) == (1, "no_ledger")


def test_a_place_without_checkpoints_and_a_file_that_is_not_there_are_distinguished(
    tmp_path: Path,
) -> None:
    for command in ("list", "verify"):
        empty = asked(command, tmp_path)
        assert (empty.exit_code, "There are none." in empty.stdout) == (0, True)
        absent = asked(command, "nope.yaml")
        assert absent.exit_code == 2
        assert failure(absent).code == "missing"
