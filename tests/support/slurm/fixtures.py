"""The fixture ``slurm``: a cluster of four nodes with eight GPUs each, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt_slurm.rest_queries import SlurmRest
from tests.support.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.support.slurm.rest import rest_over_http, skip_without_rest, token_settings, write_token
from tests.support.slurm.world import PARTITIONS, ShiftedClient, SlurmWorld


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


@pytest.fixture
def slurm_rest_world(tmp_path: Path) -> Iterator[SlurmWorld]:
    """The same cluster reached by slurmrestd with a token, as from a laptop."""
    skip_without_slurm()
    skip_without_rest()
    settings = token_settings(tmp_path)
    with (
        slurm_cluster(
            nodes=6, gpus=1, partitions=PARTITIONS, kill_wait_s=1, settings=settings
        ) as cluster,
        rest_over_http(cluster) as address,
    ):
        token = write_token(cluster, "root", tmp_path / "token")
        world = SlurmWorld(cluster)
        client = ShiftedClient(address, "root", str(token))
        client.clock = world.clock
        world.provider = world.connect(SlurmRest(client))
        yield world
