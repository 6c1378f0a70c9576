"""The policy `priced` owns a namespace's ResourceQuota: jobs of two tenants share its nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.domain.market import CapacityType, Pool
from tests.support.fake_gcs import FakeGcs
from tests.support.fleet_run import LARGE, OTHERS_GPUS, SHAPE, FleetRun, share_out
from tests.support.kubernetes.cluster import NewCluster, node
from tests.support.kubernetes.kubelet import PodProcesses, QuotaController
from tests.support.object_stores import served

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
NODES = tuple(f"owned-{number}" for number in range(4))
POOL = Pool("kubernetes", "test", "zone-a", "t4x4", CapacityType.ON_DEMAND)
QUOTA = {"requests.nvidia.com/gpu": str(LARGE.gpus)}


@pytest.fixture
def run(cluster: NewCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetRun]:
    cluster.proxy.reset()
    for name in NODES:
        cluster.add(node(name, POOL, gpus=4, cpu="8", memory="31Gi"))
    path = f"api/v1/namespaces/{cluster.namespace}/resourcequotas"
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}}
    cluster.server.create(path, {**head, "spec": {"hard": QUOTA}})
    with served(FakeGcs(("runs",))) as storage:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage)
        environment = {"STORAGE_EMULATOR_HOST": storage}
        found = FleetRun(tmp_path, "T4", environment=environment)
        options = cluster.options(
            cloud=None,
            node_types={"t4x4": {"gpu": "T4", **SHAPE}},
            nodes={"t4x4": len(NODES)},
            prices={},
            env=environment,
            grace_s=60,
        )
        found.write("kubernetes", options, "gs://runs/costopt")
        pods = PodProcesses(cluster.server, tmp_path / "pods")
        with QuotaController(cluster.server, f"{path}/quota", cluster.namespace):
            yield found
        pods.close()


def test_jobs_share_the_quota(run: FleetRun, cluster: NewCluster) -> None:
    """Others' pod holds a part of the last node; the quota is less than the nodes have."""
    gpus = {"nvidia.com/gpu": str(OTHERS_GPUS)}
    resources = {"requests": gpus, "limits": gpus}
    container = {"name": "other", "image": "other", "resources": resources}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other"},
        "spec": {"nodeName": NODES[-1], "containers": [container]},
    }
    cluster.server.create("api/v1/namespaces/default/pods", body)
    share_out(run)
    assert not [pod for pod in cluster.pods() if pod["status"]["phase"] == "Running"]
