"""The offers of a request as arrays by the number of the offer, and the cost of their transfers.

Transfers are what a start must fetch from other regions, and what saves send back there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.fleet import NodeState
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, InstanceType, Offer, Pool
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.transfers import (
    Transfer,
    cache_transfers,
    checkpoint_storage,
    mean_kept_checkpoints,
    volume_usd_per_hour,
    zone_copy_usd,
)
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest

UNCAPPED = -1
"""In place of the number of a power cap: none."""


@dataclass(frozen=True, slots=True, eq=False)
class OfferColumns:
    """Columns over O offers whose prices are known; figures are of one node.

    ``machine`` numbers ``machines``. ``busy_kw``, ``cap_w`` and ``cap_speed`` have shape (caps + 1,
    O): by the number of the cap, the last (``UNCAPPED``) without one; NaN where an offer has fewer
    caps. ``busy_kw`` and ``idle_kw`` are at the meter and NaN where the power is unknown. A hazard
    that is unknown counts as 0 here and an availability as 1, as nothing without one is planned
    where it matters. ``notice_s`` is the notice of an interruption. ``room_nodes`` is how many
    nodes a gang that does not live yet can have, ∞ where not known. ``from_h`` and ``until_h`` are
    hours from now, −∞ and ∞ where undated.
    """

    offers: tuple[Offer, ...]
    machines: tuple[InstanceType, ...]
    machine: NDArray[np.int64]
    usd_per_hour: Array
    hazard: Array
    hazard_low: Array
    hazard_high: Array
    availability: Array
    availability_low: Array
    notice_s: Array
    idle_kw: Array
    busy_kw: Array
    cap_w: Array
    cap_speed: Array
    caps: NDArray[np.int64]
    gco2e_per_kwh: Array
    power_error: Array
    communication_share: Array
    firm: NDArray[np.bool_]
    reserved: NDArray[np.bool_]
    room_nodes: Array
    wait_h: Array
    from_h: Array
    until_h: Array

    @classmethod
    def of(cls, offers: Sequence[Offer], request: PlanRequest) -> Self:
        """Return the columns of these offers of the request, whose machines are all known."""
        numbers: dict[InstanceType, int] = {}
        machine = [numbers.setdefault(request.machines[o.pool], len(numbers)) for o in offers]
        powers = [request.powers.get(offer.pool) for offer in offers]
        pue = _column(math.nan if p is None else p.pue for p in powers)
        idle_w = _column(math.nan if p is None else p.idle_w for p in powers)
        carbon = _column(
            math.nan if p is None or p.gco2e_per_kwh is None else p.gco2e_per_kwh for p in powers
        )
        hazards = [offer.hazard_per_hour for offer in offers]
        known = [offer.availability for offer in offers]
        caps = _usable_caps(powers)
        busy_w = _by_cap(
            caps, lambda c: c.busy_w, [math.nan if p is None else p.busy_w for p in powers]
        )
        return cls(
            offers=tuple(offers),
            machines=tuple(numbers),
            machine=np.array(machine, dtype=np.int64),
            usd_per_hour=_column(known_price(offer) for offer in offers),
            hazard=_column(0.0 if h is None else h.value for h in hazards),
            hazard_low=_column(0.0 if h is None else h.low for h in hazards),
            hazard_high=_column(0.0 if h is None else h.high for h in hazards),
            availability=_column(1.0 if a is None else a.value for a in known),
            availability_low=_column(1.0 if a is None else a.low for a in known),
            notice_s=_column(request.notice_s(offer.pool) for offer in offers),
            idle_kw=idle_w * pue / 1000,
            busy_kw=busy_w * pue / 1000,
            cap_w=_by_cap(caps, lambda cap: cap.cap_w, [math.nan] * len(offers)),
            cap_speed=_by_cap(caps, lambda cap: cap.speed, [1.0] * len(offers)),
            caps=np.array([len(each) for each in caps], dtype=np.int64),
            gco2e_per_kwh=carbon,
            power_error=_column(math.nan if p is None else p.relative_error for p in powers),
            communication_share=_column(
                0.0 if p is None else p.communication_share for p in powers
            ),
            firm=_flags(o.pool.capacity_type.is_uninterruptible for o in offers),
            reserved=_flags(is_reserved(o.pool) for o in offers),
            room_nodes=_room_nodes(offers, request),
            wait_h=_column(o.wait_s / 3600 for o in offers),
            from_h=_column(_hours_to(o.from_at, request.now, -math.inf) for o in offers),
            until_h=_column(_hours_to(o.until_at, request.now, math.inf) for o in offers),
        )

    def take(self, numbers: NDArray[np.int64]) -> Self:
        """Return the columns of the offers with these numbers, renumbered in this order."""
        if len(numbers) == len(self.offers):
            return self
        columns = {
            f.name: getattr(self, f.name)[..., numbers]
            for f in fields(self)
            if f.name not in ("offers", "machines")
        }
        offers = tuple([self.offers[number] for number in numbers.tolist()])
        return type(self)(offers=offers, machines=self.machines, **columns)

    def __len__(self) -> int:
        return len(self.offers)


def known_price(offer: Offer) -> float:
    """Return the dollars per node-hour of an offer that passed the screen."""
    assert offer.price_usd_per_hour is not None
    return offer.price_usd_per_hour.value


def valid_power_caps(power: NodePower) -> tuple[PowerCap, ...]:
    """Return the node's valid caps: above 0, finite and no faster than without a cap."""
    return tuple(cap for cap in power.caps if _is_usable(cap))


def _is_usable(cap: PowerCap) -> bool:
    finite = all(math.isfinite(x) and x > 0 for x in (cap.cap_w, cap.speed, cap.busy_w))
    return finite and cap.speed <= 1


def _usable_caps(powers: Sequence[NodePower | None]) -> list[tuple[PowerCap, ...]]:
    """Of each offer; offers share their power's object, so that few are looked at."""
    known: dict[int, tuple[PowerCap, ...]] = {id(None): ()}
    for power in powers:
        if power is not None and id(power) not in known:
            known[id(power)] = valid_power_caps(power)
    return [known[id(power)] for power in powers]


def _by_cap(
    caps: Sequence[tuple[PowerCap, ...]],
    figure: Callable[[PowerCap], float],
    without: Sequence[float],
) -> Array:
    """Shape (caps + 1, offers); the last row is ``without``, so that ``UNCAPPED`` finds it."""
    by_cap = np.full((max(map(len, caps), default=0) + 1, len(caps)), math.nan)
    by_cap[UNCAPPED] = without
    for number, known in enumerate(caps):
        if known:
            by_cap[: len(known), number] = [figure(cap) for cap in known]
    return by_cap


def is_reserved(pool: Pool) -> bool:
    """Return whether the account has paid for the pool's nodes and so keeps those it has now."""
    return pool.capacity_type is CapacityType.RESERVED


def _room_nodes(offers: Sequence[Offer], request: PlanRequest) -> Array:
    """Another job's nodes in a reservation become free again when it releases them."""
    living = Counter(
        node.pool
        for view in request.jobs
        for node in view.nodes
        if node.state in (NodeState.PENDING, NodeState.RUNNING)
    )
    return _column(
        math.inf
        if offer.nodes_available is None
        else offer.nodes_available + (living[offer.pool] if is_reserved(offer.pool) else 0)
        for offer in offers
    )


def _hours_to(at: datetime | None, now: datetime, unknown: float) -> float:
    return unknown if at is None else (at - now).total_seconds() / 3600


def _column(values: Iterable[float]) -> Array:
    return np.fromiter(values, dtype=float)


def _flags(values: Iterable[bool]) -> NDArray[np.bool_]:
    return np.fromiter(values, dtype=bool)


Transfers = Mapping[tuple[str, str], Transfer]
"""By ("provider/region" from, "provider/region" to)."""

Stored = tuple[tuple[str | None, float, bool], ...]
"""Region, GiB and whether every save goes there."""


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """The hours and dollars of each start's transfer, and the dollars of each save's.

    Each new node costs ``node_usd`` more. A gang that runs costs ``hour_usd`` for each hour of its
    checkpoints in the store, and ``node_hour_usd`` for that of each node's root volume. One in
    several zones pays ``zone_usd`` more for a save.
    """

    hours: float = 0.0
    usd: float = 0.0
    save_usd: float = 0.0
    node_usd: float = 0.0
    hour_usd: float = 0.0
    node_hour_usd: float = 0.0
    zone_usd: float = 0.0


def transfer_costs(
    pool: Pool, machine: InstanceType, job: Job, transfers: Transfers
) -> TransferCosts | None:
    """Return the cost of moving the job's data, its cache and its checkpoint to ``pool``.

    The result is None where a price is unknown. The transfer is free and immediate where they lie
    in the pool's region, or their location is unknown. A gang fetches them once over one node's
    network, at the transfer's or the node's gbps, whichever is less; where neither is known the
    time is unknown and none is counted. The cache is fetched by each node, all at once, which takes
    its time in its own region too: the hours hold what a slow network adds to ``overhead_s``.
    """
    here = f"{pool.provider}/{pool.region}"
    hours = usd = 0.0
    save_usd, hour_usd, node_hour_usd = _storage(pool, job, transfers)
    for region, size_gib, saved in stored_locations(job):
        if region is None or size_gib <= 0 or region == here:
            continue
        fetched, sent = _known(transfers, region, here), _known(transfers, here, region)
        if fetched is None or (saved and sent is None):
            return None
        usd += size_gib * fetched.usd_per_gib
        hours += fetched.hours(size_gib, machine)
        if saved and sent is not None:
            save_usd += size_gib * sent.usd_per_gib
    cached = [m.usd for m in cache_transfers(job, pool, 1, lambda a, b: _known(transfers, a, b))]
    if None in cached:
        return None
    node_usd = sum(each or 0.0 for each in cached)
    hours += job.slow_cache_s(machine) / 3600
    zone_usd = zone_copy_usd(job, pool.provider)
    return TransferCosts(hours, usd, save_usd, node_usd, hour_usd, node_hour_usd, zone_usd)


def _storage(pool: Pool, job: Job, transfers: Transfers) -> tuple[float, float, float]:
    """The dollars of a save's requests, of kept checkpoints per hour, and of a volume per hour.

    What is unknown is not in a plan's dollars, which then says so.
    """

    def known(origin: str, target: str) -> Transfer | None:
        return transfers.get((origin, target))

    volume_usd = volume_usd_per_hour(pool, known) or 0.0
    save_usd, kept_usd = checkpoint_storage(job, job.checkpoint.size_gib, known) or (0.0, 0.0)
    return save_usd, mean_kept_checkpoints(job) * kept_usd, volume_usd


def stored_locations(job: Job) -> Stored:
    """Return where the job's checkpoint and its data are stored."""
    checkpoint = (job.checkpoint.region, job.checkpoint.size_gib, True)
    if job.data is None:
        return (checkpoint,)
    return (checkpoint, (job.data.region, job.data.size_gib, False))


def _known(transfers: Transfers, origin: str, target: str) -> Transfer | None:
    """The transfer, None where there is none or its figures are invalid."""
    found = transfers.get((origin, target))
    if found is None or not (math.isfinite(found.usd_per_gib) and found.usd_per_gib >= 0):
        return None
    speed = found.gbps
    return found if speed is None or (math.isfinite(speed) and speed > 0) else None
