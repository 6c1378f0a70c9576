"""The pools of the cluster: what stands and what an autoscaler may bring, with prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

from costopt.domain.cluster import SLICE, slice_sizes, slice_type
from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import ON_DEMAND_HAZARD, CapacityType, InstanceType, Offer, Pool
from costopt.domain.ports import Clock
from costopt.provider.base import Provider
from costopt.provider.cache import TtlCache
from costopt_kubernetes import labels
from costopt_kubernetes.clients import ApiClient
from costopt_kubernetes.errors import StatusError
from costopt_kubernetes.machines import (
    NAME,
    ClusterNode,
    NodePool,
    Place,
    read_cluster_node,
    read_node_pools,
)
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.quantities import Amounts, minus, node_type, places, pod_requests, wanted_by

Taken = dict[str, list[tuple[bool, Amounts]]]
NODES_PATH = "api/v1/nodes"
PODS_PATH = "api/v1/pods"
NODEPOOLS_PATH = "apis/karpenter.sh/v1/nodepools"
LIVING = "status.phase!=Succeeded,status.phase!=Failed"
PRICES_TTL_S = 300.0
PRICES_USABLE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Room:
    """How many more pods a pool takes, None where unknown; ``autoscaled``: nodes may be brought.

    ``ours`` is how many there may be with ours on an owned node, None where it is not one.
    """

    pods: int | None
    autoscaled: bool = False
    ours: int | None = None


class ClusterCapacity:
    """Nodes, what pods ask of them, and NodePools: three lists at each call."""

    def __init__(self, api: ApiClient, options: KubernetesOptions) -> None:
        self._api = api
        self._options = options
        found: Any = getattr(options.machines, "instance_types", tuple)
        self._machines = {m.name: m for m in found() if m.provider == NAME}

    def machine(self, instance_type: str) -> InstanceType | None:
        """Return the machine or slice of this name, None where it is unknown."""
        return self._machines.get(instance_type)

    def cluster_nodes(self) -> tuple[ClusterNode, ...]:
        """Return the cluster's nodes. Raise ProviderError."""
        listed = self._api.list(NODES_PATH)
        return tuple(read_cluster_node(item, self._options) for item in listed)

    def rooms(self) -> dict[Pool, Room]:
        """Return the room of every pool. Raise ProviderError."""
        nodes = self.cluster_nodes()
        taken = self._taken()
        rooms: dict[Pool, Room] = {}
        for node in self._without_surplus(nodes):
            for machine in self._of_type(node.place.node_type):
                pool = node.place.pool(self._options.cluster, machine.name)
                room = Room(self._places(node, machine, taken))
                if taken is not None and node.place.is_owned(self._options):
                    room = replace(room, ours=self._places(node, machine, taken, of_others=True))
                rooms[pool] = _both(rooms.get(pool), room)
        zones = sorted({node.place.zone for node in nodes if node.place.zone})
        for place, machine, most in self._autoscaled(zones):
            pool = place.pool(self._options.cluster, machine.name)
            rooms[pool] = _both(rooms.get(pool), Room(most, autoscaled=True))
        return rooms

    def _without_surplus(self, nodes: Iterable[ClusterNode]) -> Iterator[ClusterNode]:
        """Yield the nodes, but of owned types no more than the account has."""
        seen = Counter[str]()
        for node in sorted(nodes, key=lambda each: each.name):
            of_type = node.place.node_type
            seen[of_type] += 1
            if seen[of_type] <= self._options.nodes.get(of_type, seen[of_type]):
                yield node

    def _places(
        self, node: ClusterNode, machine: InstanceType, taken: Taken | None, of_others: bool = False
    ) -> int | None:
        if not node.usable or node.ending:
            return 0
        if taken is None:
            return None
        pods = taken.get(node.name, ())
        counted = [amounts for is_ours, amounts in pods if not (of_others and is_ours)]
        return places(minus(node.allocatable, counted), wanted_by(machine, self._options))

    def _of_type(self, name: str) -> Iterator[InstanceType]:
        """Yield the whole node's machine, and those of the slices of a type that is owned."""
        whole = self._machines.get(name)
        if whole is None:
            return
        yield whole
        if name in self._options.nodes:
            for gpus in slice_sizes(whole.gpu_count):
                found = self._machines.get(slice_type(name, gpus))
                if found is not None:
                    yield found

    def _taken(self) -> Taken | None:
        """Return by node what pods ask for, and whether they are ours; None where the pods of
        others may not be listed."""
        try:
            pods = self._api.list(PODS_PATH, fieldSelector=LIVING)
        except ForbiddenError:
            return None
        taken: Taken = {}
        for pod in pods:
            name, metadata = pod["spec"].get("nodeName"), pod["metadata"]
            if name:
                managed_by = (metadata.get("labels") or {}).get(labels.MANAGED)
                is_ours = (metadata["namespace"], managed_by) == (self._api.namespace, labels.US)
                taken.setdefault(name, []).append((is_ours, pod_requests(pod)))
        return taken

    def _node_pools(self) -> tuple[NodePool, ...]:
        try:
            return tuple(read_node_pools(self._api.list(NODEPOOLS_PATH), self._options))
        except (ForbiddenError, StatusError):  # a cluster without Karpenter does not know the path
            return ()

    def _autoscaled(self, zones: list[str]) -> Iterator[tuple[Place, InstanceType, int | None]]:
        """Yield what may be brought, and how many at most."""
        options = self._options
        for pool in self._node_pools():
            for machine in self._machines.values():
                if SLICE not in machine.name and machine.name not in options.nodes:
                    yield from self._of_node_pool(pool, machine, zones)
        for name, group in options.autoscaled.items():
            known = self._machines.get(name)
            if known is None:
                continue
            for zone in group.zones or ("",):
                for capacity_type in group.capacity_types:
                    yield Place(zone, name, capacity_type), known, group.max_nodes

    def _of_node_pool(
        self, pool: NodePool, machine: InstanceType, zones: list[str]
    ) -> Iterator[tuple[Place, InstanceType, int | None]]:
        room = pool.room(machine, self._options.gpu_resource)
        for zone in pool.zones(zones):
            for capacity_type in (CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.RESERVED):
                place = Place(zone, machine.name, capacity_type)
                if pool.admits(place, machine):
                    yield place, machine, room


def _both(known: Room | None, more: Room) -> Room:
    if known is None:
        return more
    pods = None if known.pods is None or more.pods is None else known.pods + more.pods
    return Room(pods, known.autoscaled or more.autoscaled, known.ours)


class ClusterOffers:
    """An offer for each pool; a figure that is not known names the reason."""

    def __init__(self, clock: Clock, capacity: ClusterCapacity, options: KubernetesOptions) -> None:
        self._capacity = capacity
        self._options = options
        self._cloud = CloudPrices(clock, options)

    def now(self, now: datetime) -> tuple[Offer, ...]:
        """Return the offers. Raise ProviderError."""
        rooms = self._capacity.rooms()
        return tuple(self._offer(pool, rooms[pool], now) for pool in sorted(rooms))

    def price_usd_per_hour(self, pool: Pool, now: datetime) -> float | None:
        """Return the price of a node that is launched now, None where it is unknown."""
        price = self._price(pool, now)[0]
        return None if price is None else price.value

    def _offer(self, pool: Pool, room: Room, now: datetime) -> Offer:
        price, hazard, why = self._price(pool, now)
        if not pool.capacity_type.is_interruptible:
            hazard = ON_DEMAND_HAZARD
        return Offer(
            pool=pool,
            price_usd_per_hour=price,
            hazard_per_hour=hazard,
            nodes_available=room.pods,
            unknown_because=why,
            wait_s=self._options.wait_s if room.autoscaled else 0.0,
            nodes_ours=room.ours,
        )

    def _price(self, pool: Pool, now: datetime) -> tuple[Estimate | None, Estimate | None, str]:
        """Return price and hazard, and why the price is unknown."""
        whole = node_type(pool.instance_type)
        share = self._share(pool.instance_type)
        said = self._said(whole, pool.capacity_type)
        price, hazard = None, None
        if said is not None:
            price = Estimate.exact(said, Basis.LISTED, "the account file", now)
        elif self._options.cloud is not None:
            try:
                price, hazard = self._cloud.of(replace(pool, instance_type=whole), now)
            except ProviderError as error:
                return None, None, error.message
        if price is None or share is None:
            return None, hazard, f"no price is known of {whole}: write one under prices:"
        scaled = replace(
            price, value=price.value * share, low=price.low * share, high=price.high * share
        )
        return scaled, hazard, ""

    def _said(self, whole: str, capacity_type: CapacityType) -> float | None:
        """Return the account file's price of a whole node."""
        prices, options = self._options.prices, self._options
        said = prices.get(f"{whole}/{capacity_type.value}", prices.get(whole))
        machine = self._capacity.machine(whole)
        if said is None and whole in options.nodes and machine is not None:
            return options.usd_per_gpu_hour * machine.gpu_count
        return said

    def _share(self, instance_type: str) -> float | None:
        """Return which part of a node it is, None for an unknown type."""
        part, whole = (self._capacity.machine(n) for n in (instance_type, node_type(instance_type)))
        if part is None or whole is None:
            return None
        return 1.0 if part is whole else part.gpu_count / whole.gpu_count


class CloudPrices:
    """Prices of the cloud's machines: its own adapter's where the account file has its options,
    else the dated ones of the catalogue."""

    def __init__(self, clock: Clock, options: KubernetesOptions) -> None:
        self._clock = clock
        self._options = options
        self._adapter: Provider | None = None
        self._offers: TtlCache[None, tuple[Offer, ...]] = TtlCache(PRICES_TTL_S, PRICES_USABLE_S)

    def of(self, pool: Pool, now: datetime) -> tuple[Estimate | None, Estimate | None]:
        """Return price and hazard of a pool of the cluster; None where they are unknown."""
        if self._options.cloud_options is None:
            return self._dated(pool), None
        offers = self._offers.get(None, now, lambda: self._ask(now))
        of_type = [
            offer
            for offer in offers
            if offer.pool.instance_type == pool.instance_type
            and offer.pool.capacity_type is pool.capacity_type
        ]
        # AWS's adapter names zones by their IDs, which nodes do not have: then of any zone.
        found = [offer for offer in of_type if offer.pool.zone == pool.zone] or of_type
        if not found:
            return None, None
        highest = max(found, key=lambda each: _value(each.price_usd_per_hour))
        return highest.price_usd_per_hour, highest.hazard_per_hour

    def _dated(self, pool: Pool) -> Estimate | None:
        kinds = {
            CapacityType.ON_DEMAND: "list_price_usd_per_hour",
            CapacityType.SPOT: "spot_price_usd_per_hour",
        }
        lookup: Any = getattr(self._options.machines, kinds.get(pool.capacity_type, ""), None)
        if lookup is None:
            return None
        found = lookup(self._options.cloud_provider, self._options.cloud_region, pool.instance_type)
        return found if isinstance(found, Estimate) else None

    def _ask(self, now: datetime) -> tuple[Offer, ...]:
        if self._adapter is None:
            self._adapter = self._connected()
        return tuple(self._adapter.offers(now))

    def _connected(self) -> Provider:
        options = self._options
        found = entry_points(group="costopt.providers", name=options.cloud_provider or "")
        if not found:
            raise BadRequestError(
                f"no provider adapter named {options.cloud_provider!r} is installed",
                hint="leave cloud_options: out, or install costopt's extra of that name",
            )
        given = {"regions": [options.cloud_region], **(options.cloud_options or {})}
        connect = next(iter(found)).load()
        adapter = connect(self._clock, {"machines": options.machines, **given})
        if not isinstance(adapter, Provider):
            raise ProviderError(f"{options.cloud_provider} is not a provider")
        return adapter


def _value(price: Estimate | None) -> float:
    return float("-inf") if price is None else price.value
