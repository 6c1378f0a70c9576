"""Trainers learn which code and policy they run under."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.checkpoint.manifest import detect_origin
from costopt.controller.payload import with_provenance
from costopt.domain.policy import Policy
from tests.support.market_fixtures import training_job


def test_a_checkpoint_can_tell_commit_and_policy(tmp_path: Path) -> None:
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *command],
            cwd=tmp_path,
            check=True,
        )
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.strip()
    job = replace(training_job(), workdir=str(tmp_path))
    reported = detect_origin("2", dict(with_provenance(job, Policy("thrifty")).env))
    assert (reported.code_revision, reported.policy) == (commit, "thrifty")


def test_what_the_job_says_stays(tmp_path: Path) -> None:
    env = (("COSTOPT_CODE_REVISION", "v7"), ("COSTOPT_DATA_REVISION", "d1"))
    job = replace(training_job(), workdir=str(tmp_path), env=env)
    reported = detect_origin("2", dict(with_provenance(job, Policy("thrifty")).env))
    assert (reported.code_revision, reported.data_revision) == ("v7", "d1")


@pytest.mark.process
def test_a_folder_without_git_has_no_revision(tmp_path: Path) -> None:
    job = replace(training_job(), workdir=str(tmp_path), env=())
    assert dict(with_provenance(job, Policy("thrifty")).env) == {"COSTOPT_POLICY": "thrifty"}
