"""The pods that the cluster lists, and those that it listed.

The API forgets a pod as soon as it is deleted, so ended ones are kept here, with what was seen of
their end; of a pod that left unseen the events of the namespace tell, which live for an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import RLock

from costopt.domain.errors import ForbiddenError
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.text import excerpt, untrusted_text
from costopt_kubernetes import labels
from costopt_kubernetes.clients import ApiClient, Object
from costopt_kubernetes.errors import StatusError
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.pods import ReadPod, read_pod, time_of

KEEP_ENDED = timedelta(hours=2)
KEEP_PODS = timedelta(hours=1)
"""Ended pods cost nothing, and `kubectl logs` shows what they said."""
UNSEEN = "its pod is gone, and no event says why"


@dataclass(slots=True)
class SeenPod:
    """A node, and what was seen of its pod: ``doomed_at`` is when it was to end, by a notice."""

    node: Node
    uid: str = ""
    host: str = ""
    doomed_at: datetime | None = None
    released_at: datetime | None = None
    end_known_at: datetime | None = None


class KnownPods:
    """The newest observation of each node. Safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[str, SeenPod] = {}
        self._lock = RLock()

    def see(self, pods: Iterable[ReadPod], now: datetime) -> None:
        """Record these pods."""
        with self._lock:
            for pod in pods:
                known = self._known.setdefault(pod.node.node_id, SeenPod(pod.node))
                if known.uid and known.uid != pod.uid and known.end_known_at is not None:
                    known = self._known[pod.node.node_id] = SeenPod(pod.node)
                known.uid, known.host = pod.uid, pod.host
                if known.end_known_at is None:
                    known.node = pod.node
                    if not pod.node.state.is_alive:
                        self._ended(known, pod.node, now)

    def remember(self, nodes: Iterable[Node]) -> None:
        """Record nodes that were not listed yet; what is known of others is better."""
        with self._lock:
            for node in nodes:
                self._known.setdefault(node.node_id, SeenPod(node))

    def end(self, node_id: str, at: datetime, cause: EndCause, message: str, now: datetime) -> None:
        """Record how a node ended that is not listed any more."""
        with self._lock:
            known = self._known[node_id]
            ended = replace(known.node, ended_at=at, end_cause=cause, message=message)
            self._ended(known, ended, now)

    def release(self, node_id: str, now: datetime) -> None:
        """Record that it is we who delete this node."""
        with self._lock:
            known = self._known.get(node_id)
            if known is not None and known.released_at is None:
                known.released_at = now

    def doom(self, node_id: str, at: datetime | None) -> None:
        """Record when a node is to end by its notice; None: there is none any more."""
        with self._lock:
            self._known[node_id].doomed_at = at

    def get(self, node_id: str) -> SeenPod | None:
        """Return what is known of a node, None if it was never listed or ended long ago."""
        with self._lock:
            return self._known.get(node_id)

    def of_owner(self, owner: str) -> tuple[SeenPod, ...]:
        """Return the owner's nodes by launch."""
        with self._lock:
            found = [known for known in self._known.values() if known.node.owner == owner]
        return tuple(sorted(found, key=lambda k: (k.node.launched_at, k.node.node_id)))

    def drop(self, names: Iterable[str]) -> None:
        """Drop the nodes of a launch that was taken back: they never were."""
        with self._lock:
            for name in names:
                self._known.pop(name, None)

    def forget(self, now: datetime) -> None:
        """Drop nodes whose end has been known for long."""
        with self._lock:
            for node_id, known in list(self._known.items()):
                if known.end_known_at is not None and now - known.end_known_at > KEEP_ENDED:
                    del self._known[node_id]

    def _ended(self, known: SeenPod, node: Node, now: datetime) -> None:
        ended_at = max(node.launched_at, min(node.ended_at or now, now))
        known.node = replace(node, state=NodeState.ENDED, ended_at=ended_at)
        known.end_known_at = now


class PodInventory:
    """The list of pods is the truth. Raise ProviderError where it cannot be fetched."""

    def __init__(self, api: ApiClient, options: KubernetesOptions, book: KnownPods) -> None:
        self._api = api
        self._options = options
        self._book = book

    def nodes(self, owner: str, now: datetime) -> tuple[Node, ...]:
        """Return every node of the owner; ended ones for two hours.

        A launch that has waited for its time is taken back as a whole.
        """
        pods = self.pods(labels.owned_by(owner), now)
        self._close(owner, {pod.node.node_id for pod in pods}, now)
        self._give_up(pods, now)
        for pod in pods:
            known = self._book.get(pod.node.node_id)
            ended_at = None if known is None else known.node.ended_at
            if ended_at is not None and now - ended_at > KEEP_PODS:
                self._api.delete(self._api.pods(pod.node.node_id), pod.uid)
        self._book.forget(now)
        return tuple(known.node for known in self._book.of_owner(owner))

    def pods(self, selector: str, now: datetime) -> tuple[ReadPod, ...]:
        """Return the pods with these labels, and record them."""
        listed = self._api.list(self._api.pods(), labelSelector=selector)
        pods = tuple(filter(None, (read_pod(item) for item in listed)))
        self._book.see(pods, now)
        return pods

    def terminate(self, node_id: str, now: datetime) -> None:
        """Delete the pod, which says first that it is we: do nothing where it is gone or ended."""
        path = self._api.pods(node_id)
        item = self._api.get(path)
        pod = None if item is None else read_pod(item)
        if pod is None or not pod.node.state.is_alive or pod.node.state is NodeState.STOPPING:
            return
        self._book.see([pod], now)
        try:
            self._api.annotate(path, pod.uid, {labels.RELEASED: now.isoformat()})
        except StatusError:
            return  # gone meanwhile, or another of that name
        self._book.release(node_id, now)
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
            self._book.end(pod.node.node_id, now, EndCause.NO_CAPACITY, said, now)

    def _close(self, owner: str, listed: set[str], now: datetime) -> None:
        """Record how nodes ended that are not listed any more."""
        missing = [
            known
            for known in self._book.of_owner(owner)
            if known.node.state.is_alive and known.node.node_id not in listed
        ]
        for known in missing:
            at, cause, message = self._ending(known, now)
            self._book.end(known.node.node_id, at, cause, message, now)

    def _ending(self, known: SeenPod, now: datetime) -> tuple[datetime, EndCause, str]:
        node = known.node
        if known.released_at is not None:
            return known.released_at, EndCause.RELEASED, ""
        if node.state is NodeState.WAITING:
            return now, EndCause.NO_CAPACITY, "its pod was deleted while it waited"
        if known.doomed_at is not None:
            return known.doomed_at, EndCause.INTERRUPTED, "it was announced"
        events = sorted(self._events(node), key=lambda each: each[0])
        if events:
            at, message = events[-1]
            return at, EndCause.INTERRUPTED, message
        if known.host and self._api.get(f"api/v1/nodes/{known.host}") is None:
            return now, EndCause.INTERRUPTED, f"node {known.host} of the cluster is gone"
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
