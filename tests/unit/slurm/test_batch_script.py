"""The folders of launches on a node, by running the shell that a node runs."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from costopt.domain.runtime import Payload, StoredFile
from costopt_slurm.batch_script import ENDED, UNUSED_DAYS, NodeCommand, agent_command

DAY_S = 86_400.0


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


def node_folder(disk: Path, launch: str, *, age_days: float = 0.0) -> Path:
    folder = disk / f"costopt-slurm-{launch}-0"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "part").write_text("kept while its launch runs")
    then = time.time() - age_days * DAY_S
    for each in (folder / "data" / "part", folder / "data", folder):
        os.utime(each, (then, then))
    return folder


def run_node(disk: Path, launch: Path, number: int = 0) -> None:
    """Run what a node runs, with a program that ends at once in the agent's place."""
    stored = StoredFile("payloads/tiny", "0" * 64, 1)
    payload = Payload("tiny", "file:///store", wheel=stored, bundle=stored)
    command = agent_command(payload, NodeCommand("/bin/true", "", 8, "gpu:8", 5.0))
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(disk), "launch": str(launch)}
    environment["SLURM_JOB_ID"] = "7"
    subprocess.run(
        ["/bin/bash", "-c", command, "costopt", str(number)],
        env=environment,
        check=True,
        timeout=60,
    )


@pytest.mark.process
def test_a_launch_has_a_folder_of_its_own_on_each_node(disk: Path, tmp_path: Path) -> None:
    for launch in ("one", "two"):  # in two clusters, their Slurm jobs may have the same number
        run_node(disk, tmp_path / "launches" / launch)
    assert {each.name for each in disk.iterdir()} == {
        "costopt-slurm-one-0",
        "costopt-slurm-two-0",
    }


@pytest.mark.process
def test_folders_of_ended_launches_go_and_those_of_running_ones_stay(
    disk: Path, tmp_path: Path
) -> None:
    ended, running = tmp_path / "launches" / "a-ended", tmp_path / "launches" / "b-running"
    for launch in (ended, running):
        launch.mkdir(parents=True)
    (ended / ENDED).touch()
    gone = node_folder(disk, ended.name)
    days_old = node_folder(disk, running.name, age_days=UNUSED_DAYS + 2)
    (days_old / "data" / "log").touch()  # a job of many days still writes
    forgotten = node_folder(disk, "c-killed", age_days=UNUSED_DAYS + 2)

    run_node(disk, tmp_path / "launches" / "d-new")

    assert not gone.exists()
    assert not forgotten.exists()
    assert (days_old / "data" / "part").exists()
