"""Launches: all pods or none, and never twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from operator import attrgetter

from costopt.domain.errors import (
    BadRequestError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
)
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.ports import Clock
from costopt.provider.launch import CapacityBackoff, IdempotentLauncher, PriceOf, known_price
from costopt_kubernetes import labels
from costopt_kubernetes.clients import ApiClient, Object
from costopt_kubernetes.errors import EXISTS, StatusError
from costopt_kubernetes.known_nodes import PodBook, PodInventory
from costopt_kubernetes.machines import NAME
from costopt_kubernetes.offers import ClusterCapacity, Room
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.pod_request import PodRequest
from costopt_kubernetes.quantities import wanted_by

POLL_S = 1.0
GROUPS = "apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


class PodLauncher:
    """Pods whose names follow from the launch's key: the server refuses a second one of a name.

    On standing nodes a launch waits until all are scheduled, and takes all back where that does not
    happen in time. Where an autoscaler or a queue is to start them, the nodes wait as pods, and
    ``PodInventory`` takes them back.
    """

    def __init__(
        self,
        api: ApiClient,
        clock: Clock,
        options: KubernetesOptions,
        capacity: ClusterCapacity,
        inventory: PodInventory,
        book: PodBook,
        price_of: PriceOf,
    ) -> None:
        self._api = api
        self._clock = clock
        self._options = options
        self._capacity = capacity
        self._inventory = inventory
        self._book = book
        self._price_of = price_of
        backoff = CapacityBackoff(kind=str, size=attrgetter("nodes"))
        self._once = IdempotentLauncher(self._launched, self._order, self._start, backoff)

    def launch(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of this key, launched now or before. Raise ProviderError."""
        return self._once.launch(request, now)

    def _launched(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        self._inventory.pods(labels.launched_by(request.owner, request.key), now)
        found = (self._book.node(name) for name in labels.pod_names(request))
        nodes = tuple(filter(None, found))
        return nodes if len(nodes) == request.nodes else ()

    def _order(self, request: LaunchRequest, now: datetime) -> PodRequest:
        pool, cluster = request.pool, self._options.cluster
        if (pool.provider, pool.region) != (NAME, cluster):
            raise BadRequestError(f"{pool}: the account's cluster is {NAME}/{cluster}")
        machine = self._capacity.machine(pool.instance_type)
        if machine is None:
            raise BadRequestError(
                f"{pool}: {pool.instance_type!r} is not a machine of the cluster",
                hint="name its cloud: or describe it under node_types: in the account file",
            )
        price = known_price(self._price_of, pool, now, "write it under prices: in the account file")
        wanted = wanted_by(machine, self._options)
        return PodRequest(request, self._options, self._api.namespace, wanted, price)

    def _start(self, order: PodRequest, now: datetime) -> None:  # noqa: ARG002
        manifests, room = order.pods(), self._room(order.request)
        try:
            made = [self._created(order.request, each) for each in manifests]
            if self._options.gang == "volcano":
                self._make_group(order, made)
            if not room.autoscaled and self._options.gang is None:
                self._await_places(order.request)
        except ProviderUnavailableError:
            raise
        except ProviderError as error:
            self._take_back(order.request, error)
            raise

    def _room(self, request: LaunchRequest) -> Room:
        """Return the pool's room. Raise NoCapacityError where it is less than what is missing."""
        pool = request.pool
        room = self._capacity.rooms().get(pool)
        if room is None:
            raise NoCapacityError(f"{pool}: no node of the cluster is of this kind")
        if room.pods is None or room.pods >= request.nodes:
            return room
        if room.pods < request.nodes - len(self._pods(request)):
            raise NoCapacityError(f"{pool}: room for {room.pods} of {request.nodes} nodes")
        return room

    def _created(self, request: LaunchRequest, manifest: Object) -> Object:
        """Create a pod, or adopt it where an earlier try of this launch made it."""
        name = manifest["metadata"]["name"]
        try:
            return self._api.create(self._api.pods(), manifest)
        except StatusError as error:
            if error.reason != EXISTS:
                raise
        found = self._api.get(self._api.pods(name))
        if found is None or found["metadata"].get("deletionTimestamp"):
            raise ProviderUnavailableError(f"{request.pool}: the name {name} is not free yet")
        notes = found["metadata"].get("annotations") or {}
        if (notes.get(labels.OWNER), notes.get(labels.KEY)) != (request.owner, request.key):
            raise BadRequestError(f"{request.pool}: another pod has the name {name}")
        return found

    def _make_group(self, order: PodRequest, made: list[Object]) -> None:
        try:
            self._api.create(GROUPS.format(self._api.namespace), order.pod_group(made))
        except StatusError as error:
            if error.reason != EXISTS:
                raise

    def _await_places(self, request: LaunchRequest) -> None:
        """Raise NoCapacityError with the scheduler's words unless all are scheduled in time."""
        until = self._clock.now() + timedelta(seconds=self._options.standing_wait_s)
        selector = labels.launched_by(request.owner, request.key)
        while True:
            pods = self._inventory.pods(selector, self._clock.now())
            waiting = [pod for pod in pods if not pod.host and pod.node.state.is_alive]
            if len(pods) >= request.nodes and not waiting:
                return
            if self._clock.now() >= until:
                why = next(filter(None, (pod.why_waiting for pod in waiting)), "not scheduled")
                raise NoCapacityError(f"{request.pool}: {why}")
            self._clock.sleep(POLL_S)

    def _take_back(self, request: LaunchRequest, error: ProviderError) -> None:
        """Delete what a refused launch made. Raise ProviderUnavailableError where that fails."""
        try:
            for pod in self._pods(request):
                began = (pod.get("status") or {}).get("phase") != "Pending"
                metadata, grace_s = pod["metadata"], None if began else 0
                self._api.delete(self._api.pods(metadata["name"]), metadata["uid"], grace_s)
        except ProviderError as failure:
            raise ProviderUnavailableError(
                f"{error.message}; not all of it could be taken back: {failure.message}"
            ) from failure
        for name in labels.pod_names(request):
            self._book.drop(name)

    def _pods(self, request: LaunchRequest) -> list[Object]:
        selector = labels.launched_by(request.owner, request.key)
        return self._api.list(self._api.pods(), labelSelector=selector)
