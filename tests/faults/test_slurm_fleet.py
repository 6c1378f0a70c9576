"""The policy `priced` owns a partition of a real Slurm: jobs of two tenants share it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet_run import NODE_GPUS, OTHERS_GPUS, SHAPE, FleetRun, share_out
from tests.support.node_folder import ROOT
from tests.support.slurm.cluster import Partition, SlurmCluster, slurm_cluster
from tests.support.slurm.fixtures import skip_without_slurm

pytestmark = [pytest.mark.slurm, pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    partitions = (Partition("lab", more="MaxTime=1-00:00:00"),)
    with slurm_cluster(nodes=4, gpus=NODE_GPUS, partitions=partitions, kill_wait_s=1) as cluster:
        yield cluster


def test_jobs_share_the_partition(tmp_path: Path, slurm: SlurmCluster) -> None:
    run = FleetRun(tmp_path, "H100", environment=slurm.environment)
    options = {
        "cluster": "campus",
        "node_types": {"h100x4": {"gpu": "H100", **SHAPE}},
        "nodes": {"h100x4": 4},
        "owned_partition": "lab",
        "partitions": {"lab": {}},
        "folder": str(tmp_path / "shared"),
        "python": sys.executable,
        "setup": f"export PYTHONPATH={ROOT}:{ROOT / 'providers'}",
    }
    run.write("slurm", options, str(tmp_path / "store"))
    held = ("-p", "lab", "--nodelist=n4", f"--gres=gpu:{OTHERS_GPUS}", "--mem=1000")
    others = slurm.sbatch("sleep 3600", *held)
    slurm.await_state(others, "RUNNING")
    share_out(run)
    assert slurm.run("squeue", "-h", "-t", "R,CG,PD", "-o", "%i").split() == [str(others)]
