"""Announced interruptions: deletions that are not ours, disruptions, and nodes that are to go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from costopt.domain.errors import ForbiddenError
from costopt.domain.fleet import NodeState
from costopt.domain.market import Interruption
from costopt.domain.notices import SPOT_NOTICE_S
from costopt_kubernetes import labels
from costopt_kubernetes.known_nodes import PodBook, PodInventory
from costopt_kubernetes.offers import ClusterCapacity
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.pods import ReadPod

DRAIN_LEAD = timedelta(minutes=15)
"""How long before ``max_run_s`` a pod's end is announced. Our choice."""


def node_notice_s(options: KubernetesOptions) -> float:
    """Return the seconds from the taint of a spot node until the cloud takes it."""
    return SPOT_NOTICE_S.get(options.cloud_provider or "", options.grace_s)


class NoticeReader:
    """Reads pods and nodes at each call; a sign that is withdrawn is not a notice any longer."""

    def __init__(
        self,
        inventory: PodInventory,
        capacity: ClusterCapacity,
        book: PodBook,
        options: KubernetesOptions,
    ) -> None:
        self._inventory = inventory
        self._capacity = capacity
        self._book = book
        self._options = options
        self._seen_at: dict[tuple[str, str], datetime] = {}

    def now(self, owner: str, now: datetime) -> tuple[Interruption, ...]:
        """Return the notices of the owner's living pods. Raise ProviderError."""
        pods = [
            pod
            for pod in self._inventory.pods(labels.owned_by(owner), now)
            if pod.node.state.is_alive and pod.node.state is not NodeState.WAITING
        ]
        ending = self._ending_hosts() if any(pod.host for pod in pods) else {}
        signs: set[tuple[str, str]] = set()
        found = []
        for pod in pods:
            node = pod.node
            ends = dict(self._ends(pod, ending, now))
            at = min(ends.values(), default=None)
            self._book.pod(node.node_id).interrupts_at = at
            if at is not None:
                signs |= {(node.node_id, sign) for sign in ends}
                noticed_at = min(self._first(pod, sign, now) for sign in ends)
                found.append(Interruption(node.node_id, node.pool, noticed_at, at))
        self._seen_at = {sign: at for sign, at in self._seen_at.items() if sign in signs}
        return tuple(found)

    def _ending_hosts(self) -> Mapping[str, bool]:
        """Return of each node of the cluster whether it is about to go; none where not allowed."""
        try:
            return {node.name: node.ending for node in self._capacity.cluster_nodes()}
        except ForbiddenError:
            return {}

    def _ends(
        self, pod: ReadPod, ending: Mapping[str, bool], now: datetime
    ) -> Iterator[tuple[str, datetime]]:
        """Yield each sign that the pod is to end, and when."""
        grace = timedelta(seconds=self._options.grace_s)
        if pod.ends_at is not None:
            yield "deletion", pod.ends_at
        if pod.disrupted:
            yield "disruption", self._first(pod, "disruption", now) + grace
        if pod.host and ending and ending.get(pod.host, True):
            notice = timedelta(seconds=node_notice_s(self._options))
            yield "node", self._first(pod, "node", now) + notice
        if pod.started_at is not None:
            ends_at = pod.started_at + timedelta(seconds=self._options.max_run_s)
            if now >= ends_at - DRAIN_LEAD:
                yield "max_run_s", ends_at

    def _first(self, pod: ReadPod, sign: str, now: datetime) -> datetime:
        return self._seen_at.setdefault((pod.node.node_id, sign), now)
