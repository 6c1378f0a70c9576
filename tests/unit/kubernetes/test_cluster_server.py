"""The adapter on a real API server with its scheduler: what it offers, launches, sees and says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kubernetes_validate import validate

from costopt.cli.main import cli
from costopt.domain.errors import NoCapacityError, QuotaExceededError
from costopt.domain.fleet import EndCause, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt.provider.base import CheckStatus
from tests.support.kubernetes.api_server import ApiServer, Object
from tests.support.kubernetes.cluster import CLUSTER, ROLES, SPOT, TYPE, NewCluster, node
from tests.support.kubernetes.kubelet import text_of

ANYWHERE = Pool("kubernetes", CLUSTER, f"{CLUSTER}*", TYPE, CapacityType.SPOT)
AUTOSCALED = {TYPE: {"capacity_types": ["spot"], "max_nodes": 9}}


def evict(cluster: NewCluster, name: str) -> None:
    """As Karpenter and `kubectl drain` do."""
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.server.create(cluster.pod_path(name, "/eviction"), body)


def quota(cluster: NewCluster, gpus: int, used: int = 0) -> None:
    """A ResourceQuota, with the status that its controller would write."""
    hard = {"requests.nvidia.com/gpu": str(gpus)}
    path = f"api/v1/namespaces/{cluster.namespace}/resourcequotas"
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}}
    cluster.server.create(path, {**body, "spec": {"hard": hard}})
    status = {"hard": hard, "used": {"requests.nvidia.com/gpu": str(used)}}
    cluster.server.patch(f"{path}/quota/status", {"status": status})


def test_what_the_server_stored_is_valid_by_the_newest_schema(cluster: NewCluster) -> None:
    cluster.provider.launch(cluster.request(2))
    for pod in cluster.pods():
        stored = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
        validate({**stored, "spec": pod["spec"]}, "1.37", strict=False)


def test_without_the_right_to_list_all_pods_the_scheduler_judges_the_room(
    cluster: NewCluster,
) -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "get"]}]
    cluster.server.patch(f"{ROLES}/clusterroles/costopt", {"rules": rules})
    offers = {offer.pool: offer for offer in cluster.provider.offers(cluster.clock.now())}
    assert offers[SPOT].nodes_available is None
    with pytest.raises(NoCapacityError, match=r"Insufficient nvidia\.com/gpu"):
        cluster.provider.launch(cluster.request(4))
    assert not cluster.pods()
    assert cluster.provider.nodes("me") == ()


def test_a_used_up_quota_refuses_the_whole_gang(cluster: NewCluster) -> None:
    quota(cluster, 1)
    with pytest.raises(QuotaExceededError, match="exceeded quota"):
        cluster.provider.launch(cluster.request(2))
    assert not cluster.pods()


def test_quotas_hold_what_others_leave(cluster: NewCluster) -> None:
    cluster.provider.launch(cluster.request(2))
    quota(cluster, 8, used=5)
    (found,) = cluster.provider.quotas(cluster.clock.now())
    assert (found.provider, found.region, found.max_gpus) == ("kubernetes", CLUSTER, 5)


def test_an_eviction_is_a_notice_and_then_an_interruption(cluster: NewCluster) -> None:
    first, second = (n.node_id for n in cluster.provider.launch(cluster.request(2)))
    evict(cluster, first)
    (notice,) = cluster.provider.notices("me")
    assert notice.node_id == first
    left_s = (notice.interrupts_at - cluster.clock.now()).total_seconds()
    assert 100 < left_s < 300  # 120 s of grace, by the server's clock
    states = {n.node_id: n.state for n in cluster.provider.nodes("me")}
    assert states == {first: NodeState.STOPPING, second: NodeState.RUNNING}
    cluster.kubelet.settle()
    cluster.clock.sleep(300)
    ended = {n.node_id: n for n in cluster.provider.nodes("me")}[first]
    assert (ended.end_cause, ended.ended_at) == (EndCause.INTERRUPTED, notice.interrupts_at)


def test_a_taint_that_goes_again_is_no_longer_a_notice(cluster: NewCluster) -> None:
    cluster.provider.launch(cluster.request(1))
    host = cluster.pods()[0]["spec"]["nodeName"]
    cluster.taint(host)
    assert cluster.provider.notices("me")
    cluster.server.patch(f"api/v1/nodes/{host}", {"spec": {"taints": None}})
    assert not cluster.provider.notices("me")


def test_the_end_of_a_pods_time_is_announced(cluster: NewCluster) -> None:
    provider = cluster.connect(max_run_s=7200)
    provider.launch(cluster.request(1))
    began_at = cluster.clock.now()
    cluster.clock.sleep(6000)
    assert not provider.notices("me")
    cluster.clock.sleep(600)
    (notice,) = provider.notices("me")
    assert notice.interrupts_at == began_at + timedelta(seconds=7200)


def test_pods_wait_for_an_autoscaler_and_run_once_it_has_brought_nodes(
    cluster: NewCluster,
) -> None:
    provider = cluster.connect(autoscaled=AUTOSCALED)
    offers = {offer.pool: offer for offer in provider.offers(cluster.clock.now())}
    assert (offers[ANYWHERE].nodes_available, offers[ANYWHERE].wait_s) == (9, 600)
    nodes = provider.launch(cluster.request(4, pool=ANYWHERE))
    states = [n.state for n in provider.nodes("me")]
    assert states.count(NodeState.WAITING) == 1
    cluster.add(node("brought", SPOT))
    cluster.wait_scheduled(4)
    assert {n.state for n in provider.nodes("me")} == {NodeState.RUNNING}
    assert {n.node_id for n in provider.nodes("me")} == {n.node_id for n in nodes}


def test_a_launch_that_waited_in_vain_is_taken_back_as_a_whole(cluster: NewCluster) -> None:
    provider = cluster.connect(autoscaled=AUTOSCALED)
    provider.launch(cluster.request(4, pool=ANYWHERE))
    cluster.clock.sleep(599)
    assert len([n for n in provider.nodes("me") if n.state.is_alive]) == 4
    cluster.clock.sleep(10)
    provider.nodes("me")
    nodes = provider.nodes("me")
    assert not any(n.state.is_alive for n in nodes)
    (waited,) = (n for n in nodes if n.end_cause is EndCause.NO_CAPACITY)
    assert "Insufficient nvidia.com/gpu" in waited.message
    assert not cluster.pods()


def test_another_controller_adopts_the_same_pods(cluster: NewCluster) -> None:
    first = cluster.provider.launch(cluster.request(2))
    again = cluster.connect().launch(cluster.request(2))
    assert [n.node_id for n in again] == [n.node_id for n in first]
    assert len(cluster.pods()) == 2


def test_a_launch_that_was_half_made_is_completed(cluster: NewCluster) -> None:
    cluster.provider.launch(cluster.request(2))
    cluster.server.delete(cluster.pod_path(cluster.pods()[1]["metadata"]["name"]))
    assert len(cluster.connect().launch(cluster.request(2))) == 2
    assert len(cluster.pods()) == 2


def event(cluster: NewCluster, pod: Object, reason: str) -> None:
    """An event, as the kubelet or a controller writes it."""
    metadata = pod["metadata"]
    involved = {"kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"]}
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.1", "namespace": metadata["namespace"]},
        "involvedObject": involved,
        "reason": reason,
        "message": "Preempted by another pod",
        "lastTimestamp": text_of(cluster.clock.now() + timedelta(seconds=30)),
    }
    cluster.server.create(f"api/v1/namespaces/{cluster.namespace}/events", body)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [("Preempted", EndCause.INTERRUPTED), (None, EndCause.LOST)],
)
def test_what_ended_while_no_controller_ran_is_known_from_events(
    cluster: NewCluster, reason: str | None, cause: EndCause
) -> None:
    nodes = cluster.provider.launch(cluster.request(1))
    (pod,) = cluster.pods()
    if reason is not None:
        event(cluster, pod, reason)
    cluster.server.delete(cluster.pod_path(pod["metadata"]["name"]))
    cluster.clock.sleep(3000)
    later = cluster.connect()
    later.restore_known_nodes(nodes)
    (ended,) = later.nodes("me")
    assert (ended.state, ended.end_cause) == (NodeState.ENDED, cause)


def test_ended_pods_are_removed_after_an_hour(cluster: NewCluster) -> None:
    cluster.provider.launch(cluster.request(1))
    (pod,) = cluster.pods()
    end = {"exitCode": 1, "finishedAt": text_of(cluster.clock.now()), "message": "no torch"}
    fixed = {"name": "train", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [{**fixed, "state": {"terminated": end}}]}
    path = cluster.pod_path(pod["metadata"]["name"])
    cluster.server.patch(f"{path}/status", {"status": status})
    (ended,) = cluster.provider.nodes("me")
    assert ended.end_cause is EndCause.FAILED
    assert "no torch" in ended.message
    cluster.clock.sleep(4000)
    cluster.provider.nodes("me")
    assert not cluster.pods()


@pytest.fixture
def karpenter(kubernetes_server: ApiServer) -> ApiServer:
    """A cluster that knows NodePools, by the fields that are read."""
    group, path = "karpenter.sh", "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    names = {"plural": "nodepools", "singular": "nodepool", "kind": "NodePool"}
    if not kubernetes_server.items(path):
        kubernetes_server.create(
            path,
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"nodepools.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Cluster",
                    "names": names,
                    "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
                },
            },
        )
    return kubernetes_server


def test_node_pools_of_karpenter_are_offered(cluster: NewCluster, karpenter: ApiServer) -> None:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6.xlarge"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]},
    ]
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": {
            "limits": {"nvidia.com/gpu": "6"},
            "template": {"spec": {"requirements": requirements}},
        },
    }
    path = "apis/karpenter.sh/v1/nodepools"
    cluster.until(lambda: karpenter.items(path) == [])
    karpenter.create(path, body)
    offers = [o for o in cluster.provider.offers(cluster.clock.now()) if o.wait_s]
    karpenter.delete(f"{path}/gpu")
    (offer,) = offers
    assert str(offer.pool) == f"kubernetes/{CLUSTER}/us-east-1a/g6.xlarge/spot"
    assert offer.nodes_available == 6
    assert offer.price_usd_per_hour is not None or offer.unknown_because


def test_the_doctor_finds_a_cluster_that_allows_all(cluster: NewCluster) -> None:
    checks = list(cluster.provider.checks("me", "s3://bucket/costopt"))
    assert {check.verdict for check in checks} == {CheckStatus.OK}, checks
    assert not cluster.pods()
    assert cluster.provider.access_policies("me", None)["items"] == []


def test_the_doctor_names_and_prints_what_is_not_allowed(cluster: NewCluster) -> None:
    path = f"{ROLES}/namespaces/{cluster.namespace}/roles/costopt"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    cluster.server.patch(path, {"rules": rules})
    cluster.server.delete(f"{ROLES}/clusterrolebindings/costopt")
    verdicts = {c.name: c.verdict for c in cluster.provider.checks("me", None)}
    where = f"in {cluster.namespace}"
    assert verdicts[f"pods {where}"] is CheckStatus.BROKEN
    assert verdicts["nodes in the cluster"] is CheckStatus.BROKEN
    assert verdicts[f"events {where}"] is CheckStatus.MISSING
    assert verdicts["nodepools in the cluster"] is CheckStatus.MISSING
    listed: Any = cluster.provider.access_policies("me", None)["items"]
    assert [item["kind"] for item in listed] == [
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    for item in listed:
        validate(item, "1.37", strict=True)


def test_the_command_line_checks_a_cluster(cluster: NewCluster) -> None:
    account = {
        "kind": "account",
        "version": 1,
        "owner": "me",
        "store": "s3://bucket/costopt",
        "providers": {"kubernetes": dict(cluster.options())},
    }
    path = cluster.folder / "account.yaml"
    path.write_text(yaml.safe_dump(account))
    done = CliRunner().invoke(cli, ["doctor", "kubernetes", "--account", str(path)])
    assert done.exit_code == 0, done.output
    printed = CliRunner().invoke(cli, ["doctor", "kubernetes", "--account", str(path), "--rbac"])
    assert yaml.safe_load(printed.output)["kind"] == "List"


def test_slices_of_an_owned_node_share_it(cluster: NewCluster) -> None:
    """Two pods of two GPUs each on one node of eight; their price is their share of the node's."""
    shape = {"gpu": "A100-SXM4-80GB", "gpus": 8, "vcpus": 64, "memory_gib": 512}
    provider = cluster.connect(
        cloud=None, node_types={"dgx": shape}, nodes={"dgx": 1}, usd_per_gpu_hour=1.5
    )
    item = node("dgx-1", Pool("kubernetes", CLUSTER, "zone-a", "dgx", CapacityType.ON_DEMAND))
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "50", "nvidia.com/gpu": "8"}
    item["status"] |= {"capacity": amounts, "allocatable": amounts}
    cluster.add(item)
    half = Pool("kubernetes", CLUSTER, "dgx-1", "dgx:2", CapacityType.RESERVED)

    def offer(pool: Pool) -> tuple[int | None, float | None]:
        found = {o.pool: o for o in provider.offers(cluster.clock.now())}[pool]
        price = found.price_usd_per_hour
        return found.nodes_available, None if price is None else price.value

    assert offer(half) == (4, 3.0)
    nodes = provider.launch(cluster.request(2, pool=half))
    assert {n.usd_per_hour for n in nodes} == {3.0}
    assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"dgx-1"}
    assert offer(half) == (2, 3.0)
    whole = replace(half, instance_type="dgx")
    assert offer(whole) == (0, 12.0)
