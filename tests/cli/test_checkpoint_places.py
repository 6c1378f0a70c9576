"""Job files that name one checkpoint place are refused before anything is planned or bought."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.identity import JobIdentity
from costopt.checkpoint.repository import CheckpointRepository
from tests.support.command_line import invoke

JOB = """\
name: NAME
work: {amount: 360000, unit: samples}
deadline: 8h
resources: {gpu_models: [T4], min_gpus: 1, max_gpus: 1}
throughput: {points: [{gpu: T4, units_per_s: 30}]}
checkpoint: {uri: PLACE, save: 10s}
"""


def write(folder: Path, name: str, place: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(JOB.replace("NAME", name).replace("PLACE", place))
    return path


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path, "first", "saves"), write(tmp_path, "second", "./saves/")


def test_validate_names_both_jobs(copied: tuple[Path, Path]) -> None:
    done = invoke("validate", *copied)
    assert done.exit_code == 2
    assert "'first'" in done.stderr
    assert "'second'" in done.stderr
    assert "costopt checkpoints branch" in done.stderr
    rows = json.loads(invoke("validate", *copied, "-o", "json").stdout)["rows"]
    assert [row["valid"] for row in rows] == [True, False]
    assert [invoke("validate", each).exit_code for each in copied] == [0, 0]
    assert invoke("validate", copied[0], copied[0]).exit_code == 0


def test_an_account_with_a_store_gives_each_job_a_folder(copied: tuple[Path, Path]) -> None:
    account = copied[0].with_name("account.yaml")
    account.write_text("kind: account\nstore: s3://bucket/costopt\n")
    assert invoke("validate", *copied, account).exit_code == 0
    assert invoke("plan", *copied, "--account", account).exit_code == 0


@pytest.mark.parametrize("command", ["plan", "what-if"])
def test_jobs_that_are_planned_together_have_places_of_their_own(
    copied: tuple[Path, Path], command: str
) -> None:
    done = invoke(command, copied[0].parent)
    assert done.exit_code == 2, done.output
    assert "'first'" in done.stderr
    assert "'second'" in done.stderr


def test_a_copied_file_changes_nothing_of_the_first_job(copied: tuple[Path, Path]) -> None:
    saves = copied[0].parent / "saves"
    place = CheckpointRepository.open(str(saves), JobIdentity("costopt", "default", "first"))
    committer = Committer(place, 1)
    first, second = (
        str(committer.commit(SaveRequest(n, 1, 0.0, {"state.bin": memoryview(b"w")})).name)
        for n in (1, 2)
    )
    head = (saves / "HEAD").read_bytes()
    for command, *more in (("rollback", first), ("prune", "--last", "1", "--apply"), ("list",)):
        refused = invoke("checkpoints", command, copied[1], *more)
        assert refused.exit_code == 1, refused.output
        assert "'first'" in refused.stderr
    assert (saves / "HEAD").read_bytes() == head
    for job in (copied[0], saves):
        assert invoke("checkpoints", "list", job).exit_code == 0
    assert invoke("checkpoints", "rollback", copied[0], first).exit_code == 0
    assert invoke("checkpoints", "verify", copied[0], second).exit_code == 0

    refused = invoke("checkpoints", "branch", copied[0], first, copied[1])
    assert refused.exit_code == 1
    own = write(copied[0].parent, "second", "own")
    assert invoke("checkpoints", "branch", copied[0], first, own).exit_code == 0
    rows = json.loads(invoke("checkpoints", "list", own, "-o", "json").stdout)["rows"]
    assert [row["job"] for row in rows] == ["second"]
