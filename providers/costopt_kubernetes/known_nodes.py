"""The pods that the cluster lists, and those that it listed.

The API forgets a pod as soon as it is deleted, so ended ones are kept here, with what was seen of
their end; of a pod that left unseen the events of the namespace tell, which live for an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.errors import ForbiddenError
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.text import excerpt, untrusted_text
from costopt.provider.node_book import NodeBook
from costopt.provider.tags import time_of
from costopt_kubernetes import labels
from costopt_kubernetes.clients import ApiClient, Object
from costopt_kubernetes.errors import StatusError
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.pods import ReadPod, read_pod

KEEP_PODS = timedelta(hours=1)
"""Ended pods cost nothing, and `kubectl logs` shows what they said."""
UNSEEN = "its pod is gone, and no event says why"


@dataclass(slots=True)
class SeenPod:
    """What was seen of a node's pod: ``interrupts_at`` is when it was to end, by a notice."""

    uid: str = ""
    host: str = ""
    interrupts_at: datetime | None = None
    released_at: datetime | None = None


class PodBook(NodeBook):
    """The newest observation of each node, and what was seen of its pod."""

    def __init__(self) -> None:
        super().__init__()
        self._pods: dict[str, SeenPod] = {}

    def see_pods(self, pods: Iterable[ReadPod], now: datetime) -> None:
        """Record these pods; an ended one gives way to another of its name."""
        with self._lock:
            for pod in pods:
                node = pod.node
                before, uid = self.node(node.node_id), self.pod(node.node_id).uid
                if uid not in ("", pod.uid) and before is not None and not before.state.is_alive:
                    self.drop(node.node_id)
                seen = self.pod(node.node_id)
                seen.uid, seen.host = pod.uid, pod.host
                if not node.state.is_alive and node.ended_at is not None:
                    ended_at = max(node.launched_at, min(node.ended_at, now))
                    node = replace(node, ended_at=ended_at)
                self.see([node], now)

    def pod(self, node_id: str) -> SeenPod:
        """Return what was seen of a node's pod, which may change."""
        with self._lock:
            return self._pods.setdefault(node_id, SeenPod())

    def drop(self, node_id: str) -> None:
        """Drop a node as if it never was."""
        with self._lock:
            super().drop(node_id)
            self._pods.pop(node_id, None)


class PodInventory:
    """The list of pods is the truth. Raise ProviderError where it cannot be fetched."""

    def __init__(self, api: ApiClient, options: KubernetesOptions, book: PodBook) -> None:
        self._api = api
        self._options = options
        self._book = book

    def nodes(self, owner: str, now: datetime) -> tuple[Node, ...]:
        """Return every node of the owner; ended ones for two hours.

        A launch that has waited for its time is taken back as a whole.
        """
        pods = self.pods(labels.owned_by(owner), now)
        for node in self._book.missing(owner, {pod.node.node_id for pod in pods}):
            at, cause, message = self._ending(node, now)
            self._book.end([node], at, cause, message, now)
        self._give_up(pods, now)
        for pod in pods:
            known = self._book.node(pod.node.node_id)
            ended_at = None if known is None else known.ended_at
            if ended_at is not None and now - ended_at > KEEP_PODS:
                self._api.delete(self._api.pods(pod.node.node_id), pod.uid)
        self._book.forget(now)
        return self._book.known(owner)

    def pods(self, selector: str, now: datetime) -> tuple[ReadPod, ...]:
        """Return the pods with these labels, and record them."""
        listed = self._api.list(self._api.pods(), labelSelector=selector)
        pods = tuple(filter(None, (read_pod(item) for item in listed)))
        self._book.see_pods(pods, now)
        return pods

    def terminate(self, node_id: str, now: datetime) -> None:
        """Delete the pod, which says first that it is we: do nothing where it is gone or ended."""
        path = self._api.pods(node_id)
        item = self._api.get(path)
        pod = None if item is None else read_pod(item)
        if pod is None or not pod.node.state.is_alive or pod.node.state is NodeState.STOPPING:
            return
        self._book.see_pods([pod], now)
        try:
            self._api.annotate(path, pod.uid, {labels.RELEASED: now.isoformat()})
        except StatusError:
            return  # gone meanwhile, or another of that name
        seen = self._book.pod(node_id)
        seen.released_at = seen.released_at or now
        self._api.delete(path, pod.uid)

    def _give_up(self, pods: Iterable[ReadPod], now: datetime) -> None:
        """End launches of which a pod has waited in vain for as long as a launch may."""
        wait = timedelta(seconds=self._options.wait_s)
        waiting = [pod for pod in pods if pod.node.state is NodeState.WAITING]
        late = {pod.node.key: pod for pod in waiting if now - pod.created_at >= wait}
        for pod in pods:
            if pod.node.key not in late or not pod.node.state.is_alive:
                continue
            if pod.host:
                self.terminate(pod.node.node_id, now)
                continue
            why = pod.why_waiting or "nothing was brought for it"
            said = f"no capacity within {self._options.wait_s:.0f} s: {why}"
            self._api.delete(self._api.pods(pod.node.node_id), pod.uid)
            self._book.end([pod.node], now, EndCause.NO_CAPACITY, said, now)

    def _ending(self, node: Node, now: datetime) -> tuple[datetime, EndCause, str]:
        """Return how a node ended whose pod is not listed any more."""
        seen = self._book.pod(node.node_id)
        if seen.released_at is not None:
            return seen.released_at, EndCause.RELEASED, ""
        if node.state is NodeState.WAITING:
            return now, EndCause.NO_CAPACITY, "its pod was deleted while it waited"
        if seen.interrupts_at is not None:
            return seen.interrupts_at, EndCause.INTERRUPTED, "it was announced"
        events = sorted(self._events(node), key=lambda each: each[0])
        if events:
            at, message = events[-1]
            return at, EndCause.INTERRUPTED, message
        if seen.host and self._api.get(f"api/v1/nodes/{seen.host}") is None:
            return now, EndCause.INTERRUPTED, f"node {seen.host} of the cluster is gone"
        return now, EndCause.LOST, UNSEEN

    def _events(self, node: Node) -> Iterable[tuple[datetime, str]]:
        path = f"api/v1/namespaces/{self._api.namespace}/events"
        try:
            listed = self._api.list(path, fieldSelector=f"involvedObject.name={node.node_id}")
        except ForbiddenError:
            return
        for event in listed:
            at = _event_time(event)
            if event.get("reason") in ENDINGS and at is not None and at >= node.launched_at:
                yield at, excerpt(untrusted_text(f"{event['reason']}: {event.get('message', '')}"))


ENDINGS = frozenset({
    "DeletingNode", "Disrupted", "Evicted", "Killing", "NodeNotReady", "Preempted", "Preempting",
    "TaintManagerEviction", "TerminatingEvictedPod",
})  # fmt: skip
"""Reasons of events on pods that something ends; "Killing" is the kubelet's for all of them."""


def _event_time(event: Object | Mapping[str, object]) -> datetime | None:
    fields = ("lastTimestamp", "eventTime", "firstTimestamp")
    return next(filter(None, (time_of(event.get(field)) for field in fields)), None)
