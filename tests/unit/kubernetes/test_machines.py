"""Nodes and NodePools read as pools, and the prices of an autoscaler's machines."""

from __future__ import annotations

from typing import Any

import pytest

from costopt.catalog.site_machines import account_catalog
from costopt.domain.account import Account
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt_kubernetes import KubernetesOptions
from costopt_kubernetes.machines import (
    Place,
    node_affinity,
    read_cluster_node,
    read_node_pools,
)
from costopt_kubernetes.offers import CloudPrices
from costopt_kubernetes.quantities import parse_quantity, places, pod_requests, wanted_by
from tests.support.aws.account import SPOT, NewAccount

OPTIONS: dict[str, Any] = {"cluster": "test", "cloud": "aws/us-east-1"}


def options(**more: Any) -> KubernetesOptions:
    return KubernetesOptions.parse({**OPTIONS, **more})


def machine(name: str) -> InstanceType:
    catalog = account_catalog(Account(providers={"kubernetes": OPTIONS}))
    found = catalog.instance_type(
        Pool("kubernetes", "test", "zone-a", name, CapacityType.ON_DEMAND)
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500m", 0.5), ("16Gi", 2**34), ("2", 2), ("1e3", 1000), ("5k", 5000), ("1.5Ki", 1536)],
)
def test_quantities(text: str, amount: float) -> None:
    assert parse_quantity(text) == pytest.approx(amount)


def test_a_pod_asks_for_its_containers_or_its_largest_init_container() -> None:
    def container(cpu: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}}

    spec = {"containers": [container("1"), container("500m")], "initContainers": [container("4")]}
    assert pod_requests({"spec": spec})["cpu"] == 4
    spec["initContainers"] = [container("1")]
    assert pod_requests({"spec": spec})["cpu"] == pytest.approx(1.5)


def test_a_whole_node_takes_one_pod() -> None:
    wanted = wanted_by(machine("g5.xlarge"), options())
    free = {"cpu": 3.9, "memory": 15.0 * 2**30, "pods": 20.0, "nvidia.com/gpu": 1.0}
    assert places(free, wanted) == 1
    assert places({**free, "nvidia.com/gpu": 0.0}, wanted) == 0
    assert places({**free, "cpu": 1.0}, wanted) == 0


def cluster_node(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    known = {"node.kubernetes.io/instance-type": "g5.xlarge", "topology.kubernetes.io/zone": "z"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4"}}
    return {"metadata": {"name": "n", "labels": known | labels}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("labels", "capacity_type"),
    [
        ({}, CapacityType.ON_DEMAND),
        ({"karpenter.sh/capacity-type": "spot"}, CapacityType.SPOT),
        ({"karpenter.sh/capacity-type": "reserved"}, CapacityType.RESERVED),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, CapacityType.SPOT),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, CapacityType.ON_DEMAND),
        ({"cloud.google.com/gke-spot": "true"}, CapacityType.SPOT),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, CapacityType.SPOT),
    ],
)
def test_labels_tell_the_terms_and_a_pod_asks_for_the_same(
    labels: dict[str, str], capacity_type: CapacityType
) -> None:
    item = cluster_node(labels)
    found = read_cluster_node(item, options())
    assert found.place == Place("z", "g5.xlarge", capacity_type)
    for other in (CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.RESERVED):
        pool = Place("z", "g5.xlarge", other).pool("test", "g5.xlarge")
        affinity = node_affinity(pool, options())
        assert _matches(affinity, item["metadata"]["labels"]) == (other is capacity_type)


def _matches(affinity: dict[str, Any], labels: dict[str, str]) -> bool:
    """As the scheduler reads it: any term, all expressions of it."""
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    def holds(each: dict[str, Any]) -> bool:
        within = labels.get(each["key"]) in each["values"]
        return within if each["operator"] == "In" else not within

    return any(all(holds(each) for each in term["matchExpressions"]) for term in terms)


GPU_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "true"}


TEAM_TAINT = {"key": "team", "effect": "NoExecute", "value": "a"}


@pytest.mark.parametrize(
    ("spec", "more", "usable"),
    [
        ({}, {}, True),
        ({"unschedulable": True}, {}, False),
        ({"taints": [GPU_TAINT]}, {}, True),
        ({"taints": [TEAM_TAINT]}, {}, False),
        ({"taints": [TEAM_TAINT]}, {"tolerations": [{"key": "team", "value": "a"}]}, True),
        ({"taints": [TEAM_TAINT]}, {"tolerations": [{"key": "team", "value": "b"}]}, False),
        ({"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}, {}, True),
    ],
)
def test_taints_that_are_not_tolerated_keep_pods_away(
    spec: dict[str, Any], more: dict[str, Any], usable: bool
) -> None:
    assert read_cluster_node(cluster_node({}, **spec), options(**more)).usable is usable


@pytest.mark.parametrize("key", ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"])
def test_what_is_about_to_take_a_node_says_so_by_a_taint(key: str) -> None:
    item = cluster_node({}, taints=[{"key": key, "effect": "NoSchedule"}])
    assert read_cluster_node(item, options()).ending


def node_pool(*requirements: dict[str, Any], **more: Any) -> dict[str, Any]:
    template = {"spec": {"requirements": list(requirements), **more.pop("template", {})}}
    return {"metadata": {"name": "gpu"}, "spec": {"template": template, **more}}


def requires(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


SPOT_IN_A = Place("us-east-1a", "g5.xlarge", CapacityType.SPOT)


@pytest.mark.parametrize(
    ("requirement", "admitted"),
    [
        (requires("karpenter.sh/capacity-type", "In", "spot", "on-demand"), True),
        (requires("karpenter.sh/capacity-type", "NotIn", "spot"), False),
        (requires("node.kubernetes.io/instance-type", "In", "g5.xlarge"), True),
        (requires("node.kubernetes.io/instance-type", "In", "g5.2xlarge"), False),
        (requires("topology.kubernetes.io/zone", "NotIn", "us-east-1a"), False),
        (requires("karpenter.k8s.aws/instance-category", "In", "g", "p"), True),
        (requires("karpenter.k8s.aws/instance-family", "In", "p5"), False),
        (requires("karpenter.k8s.aws/instance-gpu-count", "Gt", "1"), False),
        (requires("karpenter.k8s.aws/instance-hypervisor", "In", "nitro"), True),
    ],
)
def test_a_node_pool_admits_what_its_requirements_allow(
    requirement: dict[str, Any], admitted: bool
) -> None:
    (pool,) = read_node_pools([node_pool(requirement)], options())
    assert pool.admits(SPOT_IN_A, machine("g5.xlarge")) is admitted


def test_zones_are_those_that_are_named_or_left_of_the_known() -> None:
    key = "topology.kubernetes.io/zone"
    (named,) = read_node_pools([node_pool(requires(key, "In", "b", "a"))], options())
    (left,) = read_node_pools([node_pool(requires(key, "NotIn", "a"))], options())
    (free,) = read_node_pools([node_pool()], options())
    assert [each.zones(["a", "c"]) for each in (named, left, free)] == [("a", "b"), ("c",), ("",)]


def test_limits_less_use_bound_how_many_nodes_may_come() -> None:
    item = node_pool(limits={"nvidia.com/gpu": "4", "cpu": "1000"})
    item["status"] = {"resources": {"nvidia.com/gpu": "1", "cpu": "4"}}
    (limited,) = read_node_pools([item], options())
    (free,) = read_node_pools([node_pool()], options())
    assert limited.room(machine("g5.xlarge"), "nvidia.com/gpu") == 3
    assert free.room(machine("g5.xlarge"), "nvidia.com/gpu") is None


def test_a_node_pool_whose_taints_are_not_tolerated_is_none_of_ours() -> None:
    item = node_pool(template={"taints": [TEAM_TAINT]})
    assert not list(read_node_pools([item], options()))


def prices(account: NewAccount, **more: Any) -> CloudPrices:
    options = {"cluster": "test", "cloud": f"aws/{SPOT.region}", **more}
    machines = account_catalog(Account(providers={"kubernetes": options}))
    return CloudPrices(account.clock, KubernetesOptions.parse({**options, "machines": machines}))


def pool(zone: str, instance_type: str = SPOT.instance_type) -> Pool:
    return Pool("kubernetes", "test", zone, instance_type, CapacityType.SPOT)


def test_with_its_options_the_clouds_adapter_tells_the_prices(account: NewAccount) -> None:
    now = account.clock.now()
    found = prices(account, cloud_options={"instance_types": [SPOT.instance_type]})
    theirs = {o.pool: o.price_usd_per_hour for o in account.provider.offers(now)}[SPOT]
    assert theirs is not None
    mine, _ = found.of(pool(SPOT.zone), now)
    assert mine is not None
    assert mine.value == theirs.value
    for other in ("test*", "us-east-1a"):
        highest, _ = found.of(pool(other), now)
        assert highest is not None
        assert highest.value >= mine.value
    assert found.of(pool(SPOT.zone, "unknown"), now) == (None, None)


def test_without_them_the_catalogues_dated_prices_count(account: NewAccount) -> None:
    mine, hazard = prices(account).of(pool(SPOT.zone, "g5.xlarge"), account.clock.now())
    assert mine is not None
    assert mine.observed_at is not None
    assert hazard is None
