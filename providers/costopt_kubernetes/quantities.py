"""Amounts of resources: the API's texts as numbers, what pods ask for, and what a node has left.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from costopt.domain.cluster import SLICE
from costopt.domain.market import InstanceType
from costopt_kubernetes.options import KubernetesOptions

SUFFIXES = {
    **{f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")},
    **{letter: 1000.0 ** (power + 1) for power, letter in enumerate("kMGTPE")},
    "m": 1e-3,
    "u": 1e-6,
    "n": 1e-9,
}
MIB = 2**20
MIN_MIB = 64

Amounts = dict[str, float]


def parse_quantity(text: object) -> float:
    """Return the number of a quantity such as "500m" or "16Gi". Raise ValueError for another."""
    said = str(text)
    for suffix in (said[-2:], said[-1:]):
        if suffix in SUFFIXES:
            return float(said[: -len(suffix)]) * SUFFIXES[suffix]
    return float(said)


def amounts(listed: Mapping[str, object] | None) -> Amounts:
    """Return the numbers of a list of resources."""
    return {name: parse_quantity(text) for name, text in (listed or {}).items()}


def pod_requests(pod: Mapping[str, Any]) -> Amounts:
    """Return what the scheduler counts for a pod: the sum of its containers, or its largest init
    container where that is more."""
    spec = pod["spec"]
    found: Amounts = {"pods": 1.0}
    for container in spec["containers"]:
        for name, amount in _requests(container).items():
            found[name] = found.get(name, 0.0) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in _requests(container).items():
            found[name] = max(found.get(name, 0.0), amount)
    for name, amount in amounts(spec.get("overhead")).items():
        found[name] = found.get(name, 0.0) + amount
    return found


def _requests(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def places(free: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    """Return how many pods that ask for ``wanted`` fit into what is free."""
    return max(0, int(min(free.get(name, 0.0) / each + 1e-9 for name, each in wanted.items())))


def minus(total: Mapping[str, float], taken: Iterable[Mapping[str, float]]) -> Amounts:
    """Return ``total`` less what is taken."""
    left = dict(total)
    for each in taken:
        for name, amount in each.items():
            left[name] = left.get(name, 0.0) - amount
    return left


def node_type(instance_type: str) -> str:
    """Return the type of the cluster's node on which a pod of this instance type runs."""
    return instance_type.partition(SLICE)[0]


def wanted_by(machine: InstanceType, options: KubernetesOptions) -> Amounts:
    """Return what a pod for ``machine``, a whole node or a slice of one, asks for."""
    wanted = {
        "cpu": int(machine.vcpus * options.share * 1000) / 1000,
        "memory": float(max(MIN_MIB, int(machine.memory_gib * options.share * 1024)) * MIB),
        "pods": 1.0,
    }
    if machine.gpu_count:
        wanted[options.gpu_resource] = float(machine.gpu_count)
    return wanted


def resources(wanted: Mapping[str, float]) -> dict[str, dict[str, str]]:
    """Return a container's resources: the same as request and limit, for the QoS Guaranteed."""
    listed = {name: _text(name, amount) for name, amount in wanted.items() if name != "pods"}
    return {"requests": listed, "limits": dict(listed)}


def _text(name: str, amount: float) -> str:
    if name == "cpu":
        return f"{round(amount * 1000)}m"
    return f"{int(amount) // MIB}Mi" if name == "memory" else str(round(amount))
