"""The fixture ``slurm``: a cluster of four nodes with eight GPUs each, new for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.support.slurm.world import PARTITIONS, SlurmWorld


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    """A running cluster. Tests for another one call ``slurm_cluster`` after this skip."""
    skip_without_slurm()
    with slurm_cluster() as cluster:
        yield cluster


def skip_without_slurm() -> None:
    """Skip the test where Slurm is not installed."""
    missing = missing_programs()
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not installed: nothing of Slurm is tested "
            "(Debian: apt install slurmctld slurmd slurm-client munge)"
        )


@pytest.fixture
def slurm_world() -> Iterator[SlurmWorld]:
    """A cluster with three preemptible nodes, and the adapter on a clock that stands."""
    skip_without_slurm()
    with slurm_cluster(nodes=6, gpus=1, partitions=PARTITIONS, kill_wait_s=1) as cluster:
        yield SlurmWorld(cluster)
