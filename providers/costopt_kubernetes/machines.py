"""The cluster's nodes by their labels, and what Karpenter's NodePools admit.

A pool of costopt is (zone, type, capacity type) of the cluster. Labels of the capacity type: https://karpenter.sh/docs/concepts/scheduling/,
https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html,
https://docs.cloud.google.com/kubernetes-engine/docs/concepts/spot-vms and
https://learn.microsoft.com/azure/aks/spot-node-pool.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.provider.regions import ANY_ZONE
from costopt_kubernetes.options import KubernetesOptions, Toleration
from costopt_kubernetes.quantities import Amounts, amounts, node_type

NAME = "kubernetes"
ZONE_LABEL = "topology.kubernetes.io/zone"
TYPE_LABEL = "node.kubernetes.io/instance-type"
KARPENTER = "karpenter.sh/capacity-type"
CAPACITY_LABELS: Mapping[str, Mapping[str, CapacityType]] = {
    KARPENTER: {
        "spot": CapacityType.SPOT,
        "on-demand": CapacityType.ON_DEMAND,
        "reserved": CapacityType.RESERVED,
    },
    "eks.amazonaws.com/capacityType": {
        "SPOT": CapacityType.SPOT,
        "ON_DEMAND": CapacityType.ON_DEMAND,
        "CAPACITY_BLOCK": CapacityType.RESERVED,
    },
    "cloud.google.com/gke-spot": {"true": CapacityType.SPOT},
    "cloud.google.com/gke-preemptible": {"true": CapacityType.SPOT},
    "kubernetes.azure.com/scalesetpriority": {
        "spot": CapacityType.SPOT,
        "regular": CapacityType.ON_DEMAND,
    },
}
"""Of each label what its values mean; nodes without any of them are on demand."""

ENDING_TAINTS = frozenset(
    {
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "cloud.google.com/impending-node-termination",
        "ToBeDeletedByClusterAutoscaler",
        "node.kubernetes.io/out-of-service",
    }
)
"""What is about to take a node writes one of these on it."""


@dataclass(frozen=True, slots=True)
class Place:
    """(zone, type of the node, capacity type); the zone is "" where it has none."""

    zone: str
    node_type: str
    capacity_type: CapacityType

    def pool(self, cluster: str, instance_type: str) -> Pool:
        """Return the pool of this place for a whole node or a slice of one."""
        zone = self.zone or f"{cluster}{ANY_ZONE}"
        return Pool(NAME, cluster, zone, instance_type, self.capacity_type)

    def is_owned(self, options: KubernetesOptions) -> bool:
        """Return whether it is a node that the account owns: its name is the zone."""
        return self.capacity_type is CapacityType.RESERVED and self.node_type in options.nodes

    @classmethod
    def of(cls, pool: Pool) -> Place:
        """Return the place of a pool."""
        zone = "" if pool.zone == f"{pool.region}{ANY_ZONE}" else pool.zone
        return cls(zone, node_type(pool.instance_type), pool.capacity_type)


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster; ``usable``: it is ready and takes new pods with our tolerations."""

    name: str
    place: Place
    allocatable: Amounts
    usable: bool
    ending: bool


def read_cluster_node(item: Mapping[str, Any], options: KubernetesOptions) -> ClusterNode:
    """Return a node as the API lists it."""
    name, labels = item["metadata"]["name"], item["metadata"].get("labels") or {}
    spec, status = item.get("spec") or {}, item.get("status") or {}
    taints = spec.get("taints") or ()
    ready = any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in status.get("conditions") or ()
    )
    tolerated = all(is_tolerated(taint, options) for taint in taints)
    return ClusterNode(
        name=name,
        place=_place(name, labels, options),
        allocatable=amounts(status.get("allocatable")),
        usable=ready and tolerated and not spec.get("unschedulable"),
        ending=any(taint["key"] in ENDING_TAINTS for taint in taints),
    )


def _place(name: str, labels: Mapping[str, str], options: KubernetesOptions) -> Place:
    """An owned node is a zone of its own, so that a pool says on which node its pods are."""
    of_type = labels.get(options.node_type_label, "")
    if of_type in options.nodes:
        return Place(name, of_type, CapacityType.RESERVED)
    return Place(labels.get(ZONE_LABEL, ""), of_type, _capacity_type(labels))


def _capacity_type(labels: Mapping[str, str]) -> CapacityType:
    found = (meanings.get(labels.get(key, "")) for key, meanings in CAPACITY_LABELS.items())
    return next(filter(None, found), CapacityType.ON_DEMAND)


def tolerations(options: KubernetesOptions) -> list[dict[str, Any]]:
    """Return the tolerations of pods."""
    gpus = Toleration(key=options.gpu_resource, operator="Exists")
    return [each.manifest() for each in (gpus, *options.tolerations)]


def is_tolerated(taint: Mapping[str, Any], options: KubernetesOptions) -> bool:
    """Return whether pods may come to a node in spite of this taint."""
    if taint.get("effect") == "PreferNoSchedule":
        return True
    return any(
        each.get("effect", taint.get("effect")) == taint.get("effect")
        and each.get("key", taint["key"]) == taint["key"]
        and (each["operator"] == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in tolerations(options)
    )


def node_affinity(pool: Pool, options: KubernetesOptions) -> dict[str, Any]:
    """Return the affinity that lets pods run on nodes of the pool alone.

    A spot node has one of several labels. An on-demand node may have none, so that the others are
    ruled out.
    """
    place = Place.of(pool)
    if place.is_owned(options):
        return _required([{"matchFields": [_in("metadata.name", place.zone)]}])
    common = [_in(options.node_type_label, place.node_type)]
    if place.zone:
        common.append(_in(ZONE_LABEL, place.zone))
    if place.capacity_type is CapacityType.ON_DEMAND:
        terms = [[*common, *_not_others()]]
    else:
        terms = [
            [*common, _in(key, *values)]
            for key in CAPACITY_LABELS
            if (values := _values(key, place.capacity_type))
        ]
    return _required([{"matchExpressions": term} for term in terms])


def _required(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _not_others() -> Iterator[dict[str, Any]]:
    for key, meanings in CAPACITY_LABELS.items():
        others = [v for v, kind in meanings.items() if kind is not CapacityType.ON_DEMAND]
        yield {"key": key, "operator": "NotIn", "values": others}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _values(key: str, capacity_type: CapacityType) -> list[str]:
    return [value for value, kind in CAPACITY_LABELS[key].items() if kind is capacity_type]


@dataclass(frozen=True, slots=True)
class NodePool:
    """What Karpenter may bring: the labels that its requirements restrict, and its unused limits.

    Requirements on labels that are not derived here are not judged: a pod that no node can be
    brought for waits, and is refused after its time.
    """

    requirements: tuple[Mapping[str, Any], ...]
    left: Mapping[str, float]

    def admits(self, place: Place, machine: InstanceType) -> bool:
        """Return whether the requirements allow a node of the machine's type there."""
        known = _derived_labels(machine)
        if place.zone:
            known[ZONE_LABEL] = place.zone
        allowed = _values(KARPENTER, place.capacity_type)
        known[KARPENTER] = allowed[0] if allowed else ""
        return all(
            _meets(each, known[each["key"]]) for each in self.requirements if each["key"] in known
        )

    def zones(self, known: Collection[str]) -> tuple[str, ...]:
        """Return the zones that the requirements name, or leave of the known ones; ("",) is any."""
        of_zone = [each for each in self.requirements if each["key"] == ZONE_LABEL]
        named = {v for each in of_zone if each["operator"] == "In" for v in each["values"]}
        if not of_zone:
            return ("",)
        return tuple(sorted(z for z in named or known if all(_meets(each, z) for each in of_zone)))

    def room(self, machine: InstanceType, gpu_resource: str) -> int | None:
        """Return how many nodes of this type the limits leave; None without limits."""
        size = {
            "cpu": float(machine.vcpus),
            "memory": machine.memory_gib * 2**30,
            gpu_resource: float(machine.gpu_count),
            "nodes": 1.0,
        }
        rooms = [left / size[name] for name, left in self.left.items() if size.get(name)]
        return max(0, int(min(rooms))) if rooms else None


def read_node_pools(
    items: Iterable[Mapping[str, Any]], options: KubernetesOptions
) -> Iterator[NodePool]:
    """Yield the NodePools whose nodes pods with our tolerations may come to."""
    for item in items:
        spec = item.get("spec") or {}
        template = (spec.get("template") or {}).get("spec") or {}
        if not all(is_tolerated(taint, options) for taint in template.get("taints") or ()):
            continue
        used = amounts((item.get("status") or {}).get("resources"))
        limits = amounts(spec.get("limits"))
        yield NodePool(
            requirements=tuple(template.get("requirements") or ()),
            left={name: limit - used.get(name, 0.0) for name, limit in limits.items()},
        )


def _derived_labels(machine: InstanceType) -> dict[str, str]:
    """Return the labels that Karpenter gives to nodes of AWS, as far as a type's name tells."""
    name = machine.name
    family = name.partition(".")[0]
    letters = re.match(r"[a-z]*", family)
    return {
        TYPE_LABEL: name,
        "karpenter.k8s.aws/instance-family": family,
        "karpenter.k8s.aws/instance-category": "" if letters is None else letters.group(),
        "karpenter.k8s.aws/instance-gpu-count": str(machine.gpu_count),
        "karpenter.k8s.aws/instance-cpu": str(machine.vcpus),
    }


def _meets(requirement: Mapping[str, Any], value: str) -> bool:
    operator, values = requirement["operator"], requirement.get("values") or []
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Gt":
            return value.isdigit() and int(value) > int(values[0])
        case "Lt":
            return value.isdigit() and int(value) < int(values[0])
        case "DoesNotExist":
            return False
    return True
