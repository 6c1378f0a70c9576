"""A small cluster on the real API server, and the adapter that is connected to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from costopt.catalog.site_machines import account_catalog
from costopt.domain.account import Account
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType, Pool
from costopt.domain.runtime import Payload, StoredFile
from costopt_kubernetes import KubernetesOptions, KubernetesProvider, labels
from costopt_kubernetes.clients import ApiClient
from costopt_kubernetes.doctor import CLUSTER_WIDE, NAMESPACED
from tests.support.aws.cloud_clock import CloudClock
from tests.support.kubernetes.api_server import USER, ApiServer, Object
from tests.support.kubernetes.kubelet import Kubelet, path_of
from tests.support.kubernetes.proxy import ApiProxy, Sent

CLUSTER = "test"
TYPE = "g5.xlarge"
SPOT = Pool("kubernetes", CLUSTER, "zone-a", TYPE, CapacityType.SPOT)
EMPTY = Pool("kubernetes", CLUSTER, "zone-b", TYPE, CapacityType.SPOT)
UNKNOWN = Pool("kubernetes", "mars-1", "mars-1a", TYPE, CapacityType.SPOT)
ROLES = "apis/rbac.authorization.k8s.io/v1"
NOTICE = timedelta(seconds=120)
FILE = StoredFile("payloads/job/0/file", "0" * 64, 1)
PAYLOAD = Payload("job", "file:/nowhere", FILE, FILE)
_namespaces = count(1)


def node(
    name: str, pool: Pool, gpus: int = 1, cpu: str = "4", memory: str = "16Gi", **more: str
) -> Object:
    """A node of the cluster that is ready, as large as a g5.xlarge."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "50", "nvidia.com/gpu": str(gpus)}
    capacity = {CapacityType.SPOT: "spot", CapacityType.ON_DEMAND: "on-demand"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "node.kubernetes.io/instance-type": pool.instance_type,
                "topology.kubernetes.io/zone": pool.zone,
                "karpenter.sh/capacity-type": capacity[pool.capacity_type],
                **{key.replace("__", "/"): value for key, value in more.items()},
            },
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class NewCluster:
    """Three spot nodes in SPOT, none free in EMPTY, five on demand; a namespace of its own.

    Pods run and go at once. ``provider`` has the rights that `doctor` names, and no others.
    """

    orphan_kinds: tuple[str, ...] = ("node",)

    def __init__(self, server: ApiServer, proxy: ApiProxy, folder: Path) -> None:
        self.server, self.proxy, self.folder = server, proxy, folder
        self.clock = CloudClock()
        self.clock.stand()
        self.kubelet = Kubelet(server, self.clock.now)
        self.namespace = f"team-{next(_namespaces)}"
        self._connected: list[KubernetesProvider] = []
        server.create(
            "api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}},
        )
        self.allow()
        for number in range(3):
            self.add(node(f"spot-{number}", SPOT))
        self.add(node("full", EMPTY, gpus=0))
        for number in range(5):
            on_demand = SPOT.with_capacity_type(CapacityType.ON_DEMAND)
            self.add(node(f"on-demand-{number}", on_demand))
        proxy.after = self._after
        self.provider = self.connect()

    def alive(self) -> list[str]:
        """The names of the namespace's pods."""
        return sorted(pod["metadata"]["name"] for pod in self.pods())

    def close(self) -> None:
        """Remove all that a test has made."""
        self.proxy.reset()
        for each in self._connected:
            each.close()
        for pod in self.server.items("api/v1/pods"):
            self.server.delete(path_of(pod))
        for path in ("api/v1/nodes", f"{ROLES}/clusterrolebindings", f"{ROLES}/clusterroles"):
            for item in self.server.items(path):
                name = item["metadata"]["name"]
                if path == "api/v1/nodes" or name.startswith("costopt"):
                    self.server.delete(f"{path}/{name}")
        self.server.delete(f"api/v1/namespaces/{self.namespace}/resourcequotas/quota")

    def add(self, item: Object) -> None:
        """A node of the cluster, whose status no kubelet has to write."""
        self.server.create("api/v1/nodes", item)
        name = item["metadata"]["name"]
        self.server.patch(f"api/v1/nodes/{name}/status", {"status": item["status"]})

    def allow(self, *, cluster_wide: bool = True) -> None:
        """Give the user what the doctor's tables name."""
        subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
        kinds = [("Role", NAMESPACED, f"{ROLES}/namespaces/{self.namespace}/roles")]
        if cluster_wide:
            kinds.append(("ClusterRole", CLUSTER_WIDE, f"{ROLES}/clusterroles"))
        for kind, rights, path in kinds:
            head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "costopt"}}
            self.server.create(path, {**head, "kind": kind, "rules": [r.rule for r in rights]})
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "costopt"}
            self.server.create(
                f"{path.removesuffix('s')}bindings",
                {**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]},
            )

    def options(self, **more: Any) -> Mapping[str, Any]:
        """The account file's part of the cluster."""
        config = self.server.kubeconfig(
            USER, self.folder / "kubeconfig", self.proxy.url, self.namespace
        )
        return {
            "cluster": CLUSTER,
            "cloud": "aws/us-east-1",
            "kubeconfig": str(config),
            "image": "registry.example/train:1",
            "service_account": "trainer",
            "prices": {TYPE: 1.0, f"{TYPE}/spot": 0.25},
            "standing_wait_s": 5,
            "timeout_s": 10,
            **more,
        }

    def connect(self, **more: Any) -> KubernetesProvider:
        """Another controller, which remembers nothing."""
        said = self.options(**more)
        machines = account_catalog(Account(providers={"kubernetes": said}))
        parsed = KubernetesOptions.parse(
            {**said, "machines": machines, "payloads": {"job": PAYLOAD}}
        )
        self._connected.append(
            KubernetesProvider(self.clock, parsed, ApiClient(self.clock, parsed))
        )
        return self._connected[-1]

    def pods(self) -> list[Object]:
        """The pods of the namespace."""
        return self.server.items(f"api/v1/namespaces/{self.namespace}/pods")

    def pod_path(self, name: str, part: str = "") -> str:
        """The path of a pod of the namespace."""
        return f"api/v1/namespaces/{self.namespace}/pods/{name}{part}"

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for the server's own programs."""
        give_up_at = time.monotonic() + 30
        while True:
            with suppress(HTTPError):
                if holds():
                    return
            assert time.monotonic() < give_up_at
            time.sleep(0.05)

    def wait_scheduled(self, pods: int) -> None:
        """Wait until so many pods have nodes, and run them."""
        self.until(lambda: sum("nodeName" in pod["spec"] for pod in self.pods()) >= pods)
        self.kubelet.settle()

    def taint(self, host: str, key: str = "karpenter.sh/disrupted") -> None:
        """Write a taint on a node, as what is about to take it does."""
        taints = [{"key": key, "effect": "NoSchedule"}]
        self.server.patch(f"api/v1/nodes/{host}", {"spec": {"taints": taints}})

    def falls_to(self, pool: Pool, nodes: int, after_s: float) -> None:
        """All but the first ``nodes`` of the pool are taken then, announced two minutes before."""
        taken: list[tuple[str, str]] = []

        def announce() -> None:
            there = {
                pod["metadata"]["name"]: pod["spec"]["nodeName"]
                for pod in self.pods()
                if pod["metadata"]["annotations"][labels.PREFIX + "pool"] == str(pool)
            }
            taken.extend(sorted(there.items())[nodes:])
            for _, host in taken:
                self.taint(host)

        def reclaim() -> None:
            for name, host in taken:
                self.server.delete(f"api/v1/nodes/{host}")
                self.server.delete(self.pod_path(name))

        at = self.clock.now() + timedelta(seconds=after_s)
        self.clock.at(at - NOTICE, announce)
        self.clock.at(at, reclaim)

    def request(self, nodes: int = 1, key: str = "job-0001", pool: Pool = SPOT) -> LaunchRequest:
        """A launch of the job "job" for the owner "me"."""
        return LaunchRequest("me", "job", pool, nodes, key)

    def _after(self, sent: Sent) -> None:
        if sent.method in ("POST", "DELETE") and "/pods" in sent.path:
            self.kubelet.settle()
