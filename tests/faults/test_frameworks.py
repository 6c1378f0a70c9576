"""Trainings by other frameworks end on a notice, and go on as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.near_nodes import NearNodes

ROOT = Path(__file__).parents[2]


def run(folder: Path, framework: str, near: str, *plans: str) -> dict[str, list[list[str]]]:
    """What each rank of each run held in the end: step, learning rate and digest."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.framework_processes", str(folder), framework, *plans],
        env=os.environ
        | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'providers'}", "COSTOPT_SNAPSHOTS": near},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    return {
        each.name: [path.read_text().splitlines() for path in sorted(each.glob("rank*"))]
        for each in folder.iterdir()
    }


@pytest.mark.slow
@pytest.mark.worker_group("processes")
@pytest.mark.parametrize("framework", ["hugging_face", "torchtitan"])
def test_a_training_goes_on_after_a_notice(tmp_path: Path, framework: str) -> None:
    pytest.importorskip("transformers" if framework == "hugging_face" else framework)
    plans = ["once,2,7", "twice,2,7,3", "twice,2,7"]
    if framework == "hugging_face":  # torchtitan's data loader refuses another number
        plans += ["twice,1,9", "twice,1,9"]
    node = NearNodes(1, alive=1)
    held = run(tmp_path, framework, node.addresses[0], *plans)
    near = [each.snapshot for each in node.memories[0].newest()]
    node.close()
    assert {snapshot.rank for snapshot in near} == {0, 1}
    assert max(near, key=lambda each: each.age).manifest.step == int(plans[-1].split(",")[2])
    for rank in (0, 1):
        (once,), (stopped, resumed, *_) = held["once"][rank], held["twice"][rank]
        assert stopped.startswith("3 ")
        assert resumed == once
    if framework == "hugging_face":
        alone, finished = held["twice"][0][2:]
        assert alone.startswith("9 ")
        assert finished == alone
