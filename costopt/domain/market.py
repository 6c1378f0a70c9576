"""What can be rented: pools, instance types, offers and capacity reservations.

Reservations are nodes that are held for the account and paid for whether they run or not, some for
fixed days only. A pool may have several reservations, but has one offer, which applies to a launch
and to running nodes. A launch takes all its nodes from one reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

from costopt.domain.account_price import AccountPrice
from costopt.domain.estimate import Basis, Estimate


class CapacityType(StrEnum):
    """The terms on which a node is rented."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"
    RESERVED = "reserved"
    FLEX_START = "flex_start"

    @property
    def is_interruptible(self) -> bool:
        """Return whether the provider may interrupt the node."""
        return self is CapacityType.SPOT

    @property
    def is_uninterruptible(self) -> bool:
        """Return whether an accepted launch brings nodes at once that stay, as deadlines require.

        A flex-start launch is accepted and waits, and may end without nodes.
        """
        return self in (CapacityType.ON_DEMAND, CapacityType.RESERVED)


COMMITTED = "#"
"""Between the zone of a pool and the name of the commitment that pays for it."""


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """provider × region × zone × instance type × capacity type."""

    provider: str
    region: str
    zone: str
    instance_type: str
    capacity_type: CapacityType

    def __str__(self) -> str:
        return "/".join(
            (self.provider, self.region, self.zone, self.instance_type, self.capacity_type.value)
        )

    @classmethod
    def parse(cls, text: str) -> Pool:
        """Parse ``str(pool)``. Raises ValueError."""
        parts = text.split("/")
        if len(parts) != 5 or not all(parts):
            raise ValueError(
                f"{text!r} is not a pool; expected provider/region/zone/instance_type/capacity_type"
            )
        return cls(parts[0], parts[1], parts[2], parts[3], CapacityType(parts[4]))

    def with_capacity_type(self, capacity_type: CapacityType) -> Pool:
        """Return the pool of the same place and instance type with other terms."""
        return Pool(self.provider, self.region, self.zone, self.instance_type, capacity_type)

    @property
    def commitment(self) -> str | None:
        """Return the name of the account's commitment that pays for its nodes, None without one.

        Such a pool is reserved, its zone ends in ``#NAME``, and its nodes are launched on demand.
        """
        return self.zone.partition(COMMITTED)[2] or None

    @property
    def uncommitted(self) -> Pool:
        """Return the pool in which its nodes are launched: itself unless a commitment pays."""
        if COMMITTED not in self.zone:
            return self
        zone = self.zone.partition(COMMITTED)[0]
        return replace(self, zone=zone, capacity_type=CapacityType.ON_DEMAND)

    def committed_to(self, commitment: str) -> Pool:
        """Return the pool of the nodes here that a commitment of this name pays for."""
        zone = f"{self.zone}{COMMITTED}{commitment}"
        return replace(self, zone=zone, capacity_type=CapacityType.RESERVED)

    @property
    def quota_kind(self) -> tuple[str, str, str, CapacityType, str | None]:
        """Return what quotas distinguish: zones of a region count alike."""
        return self.provider, self.region, self.instance_type, self.capacity_type, self.commitment


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator of an instance type; None where the vendor publishes no figure.

    ``relative_mfu`` is the share of its peak that training reaches, over that of the catalogue's
    reference model; None where no training times are recorded.
    """

    model: str
    memory_gib: float
    tdp_w: float | None
    idle_w: float | None
    peak_tflops: float
    peak_precision: str
    relative_mfu: Estimate | None = None

    def matches_name(self, requested: str) -> bool:
        """Return whether ``requested`` ("H100") means this model ("H100-SXM5-80GB").

        A request matches the whole model name or a leading run of its dash-separated parts,
        in any case.
        """
        return _is_model(self.model, requested)


@lru_cache(maxsize=4096)
def _is_model(model: str, requested: str) -> bool:
    mine, asked = model.upper().split("-"), requested.upper().split("-")
    return mine[: len(asked)] == asked


class Cooling(StrEnum):
    """How a machine is cooled."""

    AIR = "air"
    LIQUID = "liquid"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """The machine that a pool offers. Watts of the CPU are per vCPU, idle and at full load.

    ``network_gbps`` is None where the provider gives no figure. A machine is cooled by air unless
    its provider says otherwise.
    """

    provider: str
    name: str
    gpu: Gpu
    gpu_count: int
    vcpus: int
    memory_gib: float
    network_gbps: float | None
    cpu_idle_w_per_vcpu: float
    cpu_max_w_per_vcpu: float
    source: str
    cooling: Cooling = Cooling.AIR


@dataclass(frozen=True, slots=True)
class Region:
    """The region of a pool, for energy and carbon: annual means, g/kWh; None where unknown.

    ``electricity_maps_zone`` and ``watttime_region`` are its grid's names at these services.
    """

    provider: str
    name: str
    pue: float | None
    average_gco2e_per_kwh: float | None
    marginal_gco2e_per_kwh: float | None
    electricity_maps_zone: str | None
    year: int
    source: str
    watttime_region: str | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A pool at an instant, with its price and hazard.

    ``price_usd_per_hour`` is for one node and None where unknown. ``nodes_available`` is how many
    more nodes a launch could get now: None where the provider does not say, 0 where it says none.
    ``hazard_per_hour`` counts interruptions per node-hour; None where nothing is known, and an
    exact 0 for capacity that is never interrupted. ``from_at`` and ``until_at`` bound the time in
    which dated capacity (a reserved block) can be used; None is unbounded. ``unknown_because``
    explains to a user why a figure is missing, and is empty otherwise. ``wait_s`` is the maximum
    time for which a launch waits for capacity, at no cost, before it is refused.
    ``account_price`` says how the account's terms changed the price, None where they did not.
    ``is_free``: the account says that its nodes cost nothing, so that its price may be 0.
    ``nodes_ours`` is how many of it may be ours at once on an owned node, those that are included,
    as others use the rest of it; None: it has no other users.
    """

    pool: Pool
    price_usd_per_hour: Estimate | None
    hazard_per_hour: Estimate | None
    nodes_available: int | None
    availability: Estimate | None = None
    from_at: datetime | None = None
    until_at: datetime | None = None
    unknown_because: str = ""
    wait_s: float = 0.0
    account_price: AccountPrice | None = None
    is_free: bool = False
    nodes_ours: int | None = None


@dataclass(frozen=True, slots=True)
class Interruption:
    """The provider interrupts a node: ``interrupts_at`` is when the node ends."""

    node_id: str
    pool: Pool
    noticed_at: datetime
    interrupts_at: datetime


NEVER_INTERRUPTED = Estimate.exact(0.0, Basis.LISTED, "reserved nodes are held until its end")
UNINTERRUPTIBLE_HAZARD = Estimate.exact(
    0.0, Basis.LISTED, "capacity of this type is never interrupted"
)
ON_DEMAND_HAZARD = Estimate.exact(0.0, Basis.LISTED, "on-demand nodes are not interrupted")
BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A capacity reservation. ``nodes`` are its free ones. ``used``: some of its nodes are in use,
    by us or others. ``bound``: its nodes end with it. ``made``: it exists, so that a launch can
    name it, and is not only booked.
    """

    name: str
    pool: Pool
    nodes: int
    used: bool = False
    from_at: datetime | None = None
    until_at: datetime | None = None
    bound: bool = False
    made: bool = True

    @property
    def begin_at(self) -> datetime:
        """Return ``from_at`` in a form that compares."""
        return self.from_at or BEGINNING_OF_TIME

    @property
    def end_at(self) -> datetime:
        """Return ``until_at`` in a form that compares."""
        return self.until_at or END_OF_TIME

    def usable(self, now: datetime) -> bool:
        """Return whether a launch may name it."""
        return self.made and self.begin_at <= now < self.end_at


def reservation_offers(held: Iterable[Reservation], now: datetime) -> tuple[Offer, ...]:
    """Return an offer for each pool with a reservation that has not ended. Nodes add no cost."""
    by_pool: dict[Pool, list[Reservation]] = {}
    for each in sorted(held, key=lambda each: (each.begin_at, each.name)):
        if now < each.end_at:
            by_pool.setdefault(each.pool, []).append(each)
    return tuple(_offer(each, now) for each in by_pool.values())


def select_reservation(
    held: Iterable[Reservation], pool: Pool, nodes: int, now: datetime
) -> Reservation | None:
    """Return the reservation that a launch of so many nodes must name: of those with enough free
    nodes the one that lasts longest, and of these the fullest.

    Where none has enough, one is named all the same, as the launch may repeat one that took them.
    """
    there = [each for each in held if each.pool == pool and each.usable(now)]
    return max(
        there, key=lambda each: (each.nodes >= nodes, each.end_at, -each.nodes), default=None
    )


def _offer(held: Sequence[Reservation], now: datetime) -> Offer:
    """Return the offer of a pool's reservations, which are sorted by their beginning.

    It is of the one with the most free nodes of those usable now, else of the first; but only until
    the first of them that has nodes ends, as our nodes may be in it.
    """
    usable = [each for each in held if each.usable(now)]
    largest = max(usable, key=lambda each: (each.nodes, each.end_at), default=held[0])
    ends_at = min((each.end_at for each in usable if each.used), default=END_OF_TIME)
    until_at = min(largest.end_at, ends_at)
    return Offer(
        pool=largest.pool,
        price_usd_per_hour=Estimate.exact(
            0.0,
            Basis.LISTED,
            f"reservation {largest.name}: paid for whether it is used or not",
            now,
        ),
        hazard_per_hour=NEVER_INTERRUPTED,
        nodes_available=largest.nodes,
        from_at=largest.from_at,
        until_at=None if until_at == END_OF_TIME else until_at,
    )
