"""A Kubernetes cluster as a provider of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from costopt.domain.account import Quota
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Interruption, Offer, Pool
from costopt.domain.ports import Clock
from costopt.provider.base import Check, Provider
from costopt_kubernetes.clients import ApiClient
from costopt_kubernetes.doctor import ClusterDoctor
from costopt_kubernetes.known_nodes import PodBook, PodInventory
from costopt_kubernetes.launch import PodLauncher
from costopt_kubernetes.machines import NAME
from costopt_kubernetes.notices import NoticeReader, node_notice_s
from costopt_kubernetes.offers import ClusterCapacity, ClusterOffers
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.quotas import NamespaceQuotas


class KubernetesProvider(Provider):
    """One cluster, whose pods are the nodes. The cluster's name is the region of its pools."""

    def __init__(self, clock: Clock, options: KubernetesOptions, api: ApiClient) -> None:
        self.options = options
        self.api = api
        self._clock = clock
        self._book = PodBook()
        capacity = ClusterCapacity(api, options)
        self._offers = ClusterOffers(clock, capacity, options)
        self._inventory = PodInventory(api, options, self._book)
        self._notices = NoticeReader(self._inventory, capacity, self._book, options)
        self._quotas = NamespaceQuotas(api, options)
        self._doctor = ClusterDoctor(api, options, capacity)
        self._launcher = PodLauncher(
            api,
            clock,
            options,
            capacity,
            self._inventory,
            self._book,
            self._offers.price_usd_per_hour,
        )

    @property
    def names(self) -> frozenset[str]:
        """Only "kubernetes"."""
        return frozenset({NAME})

    def notice_s(self, pool: Pool) -> float:  # noqa: ARG002 - the same for all
        """Return the shortest of the notices that a pod of the cluster may get."""
        return min(self.options.grace_s, node_notice_s(self.options))

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return a pool for each kind of node that exists or may be added."""
        return self._offers.now(now)

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """Launch all pods or none, and none twice; see ``PodLauncher``. Raise ProviderError."""
        return self._launcher.launch(request, self._clock.now())

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Return every node with this owner's label; ended ones for two hours."""
        return self._inventory.nodes(owner, self._clock.now())

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        """Add nodes that may have ended while no controller ran; events tell how for an hour."""
        self._book.remember(nodes)

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Return what announces the end of living pods."""
        return self._notices.now(owner, self._clock.now())

    def terminate(self, node_id: str) -> None:
        """Delete the pod; do nothing if it is missing."""
        self._inventory.terminate(node_id, self._clock.now())

    def quotas(self, now: datetime) -> tuple[Quota, ...]:  # noqa: ARG002
        """Return what the namespace's ResourceQuotas leave to costopt."""
        return self._quotas.now()

    def checks(self, owner: str, store: str | None) -> Iterator[Check]:
        """Check whether the cluster can run jobs."""
        return self._doctor.checks(owner, store, self._clock.now())

    def access_policies(self, owner: str, store: str | None) -> Mapping[str, object]:  # noqa: ARG002
        """Return the Role and ClusterRole that are missing, as a List for kubectl."""
        return self._doctor.missing_roles()

    def close(self) -> None:
        """Close the connections."""
        self.api.close()
