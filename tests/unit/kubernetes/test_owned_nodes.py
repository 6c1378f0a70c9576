"""Nodes that the account owns: each is a zone, with the room that others' pods leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from costopt.catalog.site_machines import account_catalog
from costopt.domain.account import Account
from costopt.domain.market import CapacityType, Pool
from costopt_kubernetes import KubernetesOptions
from costopt_kubernetes.clients import ApiClient
from costopt_kubernetes.labels import MANAGED, US
from costopt_kubernetes.machines import node_affinity
from costopt_kubernetes.offers import NODES_PATH, PODS_PATH, ClusterCapacity

SHAPE = {"gpu": "A100-SXM4-80GB", "gpus": 8, "vcpus": 64, "memory_gib": 512}
OWNED: dict[str, Any] = {
    "cluster": "test",
    "node_types": {"dgx": SHAPE, "old": SHAPE},
    "nodes": {"dgx": 2},
}
CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "50", "nvidia.com/gpu": "8"}


@dataclass(frozen=True)
class Listed:
    """What the API lists."""

    lists: dict[str, list[dict[str, Any]]]
    namespace: str = "team"

    def list(self, path: str, **_: str) -> list[dict[str, Any]]:
        return self.lists.get(path, [])


def node(name: str, node_type: str = "dgx", **spec: Any) -> dict[str, Any]:
    labels = {
        "node.kubernetes.io/instance-type": node_type,
        "topology.kubernetes.io/zone": "zone-a",
    }
    status = {"allocatable": CAPACITY, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(host: str, gpus: int, namespace: str = "team", *, managed: bool = False) -> dict[str, Any]:
    container = {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    labels = {MANAGED: US} if managed else {}
    metadata = {"namespace": namespace, "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": host, "containers": [container]}}


def capacity(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> ClusterCapacity:
    machines = account_catalog(Account(providers={"kubernetes": OWNED}))
    options = KubernetesOptions.parse({**OWNED, "machines": machines})
    return ClusterCapacity(cast("ApiClient", Listed({NODES_PATH: nodes, PODS_PATH: pods})), options)


def pool(host: str, instance_type: str = "dgx:1") -> Pool:
    return Pool("kubernetes", "test", host, instance_type, CapacityType.RESERVED)


@pytest.mark.parametrize(
    ("pods", "free", "ours"),
    [
        ([], 8, 8),
        ([pod("n1", 3)], 5, 5),
        ([pod("n1", 2, managed=True)], 6, 8),
        ([pod("n1", 3), pod("n1", 2, managed=True)], 3, 5),
        ([pod("n1", 2, "another", managed=True)], 6, 6),
        ([pod("n2", 8)], 8, 8),
    ],
)
def test_what_others_ask_for_is_left_to_them(
    pods: list[dict[str, Any]], free: int, ours: int
) -> None:
    rooms = capacity([node("n1"), node("n2")], pods).rooms()
    assert (rooms[pool("n1")].pods, rooms[pool("n1")].ours) == (free, ours)


def test_a_node_is_a_zone_and_no_more_are_owned_than_the_account_says() -> None:
    rooms = capacity([node("n3"), node("n2"), node("n1"), node("other", "old")], []).rooms()
    assert {each.zone for each in rooms if each.instance_type == "dgx"} == {"n1", "n2"}
    assert {each.instance_type for each in rooms if each.zone == "n1"} == {
        *("dgx", "dgx:1", "dgx:2", "dgx:4")
    }
    shared = Pool("kubernetes", "test", "zone-a", "old", CapacityType.ON_DEMAND)
    assert rooms[shared].ours is None


def test_a_cordoned_node_takes_no_more() -> None:
    rooms = capacity([node("n1", unschedulable=True), node("n2")], []).rooms()
    assert rooms[pool("n1")].pods == 0
    assert rooms[pool("n2")].pods == 8


def test_pods_of_an_owned_node_run_there_alone() -> None:
    options = KubernetesOptions.parse(OWNED)
    (term,) = node_affinity(pool("n1"), options)["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    named = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert term == {"matchFields": [named]}
