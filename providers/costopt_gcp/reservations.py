"""Reservations: nodes that are paid for whether they run or not, some for a stretch of days.

Only those that a launch must name: others are used by on-demand nodes unasked. A future reservation
in calendar mode (https://cloud.google.com/compute/docs/instances/future-reservations-calendar-mode)
becomes a reservation when it begins, and Google deletes its nodes when it ends.

A pool may have several, and has one offer, of what holds for a launch and for nodes that run. A
launch takes all its nodes from one reservation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.kept import Kept
from costopt.domain.market import CapacityType, Offer, Pool
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.instance import time_of
from costopt_gcp.shape import instance_type_of, last, region_of

MINUTES_5_S = 300.0
USABLE_S = 3600.0
HELD = frozenset({"APPROVED", "COMMITTED", "FULFILLED", "PROVISIONING"})
CALENDAR = "CALENDAR"
NEVER_INTERRUPTED = Estimate.exact(0.0, Basis.LISTED, "reserved nodes are held until its end")
EVER = datetime.min.replace(tzinfo=UTC)
ENDLESS = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reservation:
    """``nodes`` are those that are free. ``used``: some are not, be they ours or others'.
    ``bound``: its nodes end with it. ``made``: it is there, to be named by a launch, and not only
    booked.
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
    def end_at(self) -> datetime:
        """``until_at``, for comparing."""
        return self.until_at or ENDLESS


class Reservations:
    """Those of the project, asked for every five minutes."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: Kept[None, tuple[Reservation, ...]] = Kept(MINUTES_5_S, USABLE_S)

    def offers(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[Offer, ...]:
        """A reserved offer for each pool that has a reservation which has not ended.

        A node costs nothing more. Raises ProviderError.
        """
        held: dict[Pool, list[Reservation]] = {}
        for each in self._kept.get(None, now, self._ask):
            pool = each.pool
            if pool.region == region and pool.instance_type in instance_types and now < each.end_at:
                held.setdefault(pool, []).append(each)
        return tuple(_offer(each, now) for each in held.values())

    def of(self, pool: Pool, nodes: int, now: datetime) -> Reservation | None:
        """The reservation that a launch of so many nodes must name: of those with room for all the
        one that lasts longest, and of these the fullest. Raises ProviderError.

        Where none has room one is named all the same, for the launch may be the repetition of one
        that took the room. Asked anew: a reservation that begins gets a name that its booking does
        not tell before.
        """
        there = [held for held in self._ask() if held.pool == pool and _usable(held, now)]
        return max(there, key=lambda h: (h.nodes >= nodes, h.end_at, -h.nodes), default=None)

    def _ask(self) -> tuple[Reservation, ...]:
        held = {
            (reservation.pool.zone, reservation.name): reservation
            for item in self._items("reservations", "reservations")
            if (reservation := _read(item)) is not None
        }
        for item in self._items("future_reservations", "futureReservations"):
            future = _read_future(item)
            if future is None:
                continue
            zone = future.pool.zone
            made = {(zone, last(url)) for url in item.status.auto_created_reservations}
            begun = made & held.keys()
            held |= {key: _of_future(held[key], future) for key in begun}
            if not begun:
                held[zone, future.name] = future
        return tuple(sorted(held.values(), key=lambda each: (each.from_at or EVER, each.name)))

    def _items(self, collection: str, resource: str) -> list[Any]:
        request = {"project": self._clients.project}
        with asking(f"compute.{resource}.list", "all zones"):
            pages = self._clients.of(collection).aggregated_list(
                request=request, **self._clients.reading()
            )
            return [item for _, scoped in pages for item in getattr(scoped, collection)]


def _usable(held: Reservation, now: datetime) -> bool:
    begun = held.from_at is None or held.from_at <= now
    return held.made and begun and now < held.end_at


def _read(item: Any) -> Reservation | None:
    """A reservation that can be used by naming it; None where it is none."""
    specific = item.specific_reservation
    usable = item.status == "READY" and item.specific_reservation_required
    instance_type = instance_type_of(specific.instance_properties)
    if not usable or instance_type is None:
        return None
    return Reservation(
        name=item.name,
        pool=_pool(last(item.zone), instance_type),
        nodes=max(0, specific.count - specific.in_use_count),
        used=specific.in_use_count > 0,
        until_at=time_of(item.delete_at_time),
    )


def _read_future(item: Any) -> Reservation | None:
    """What is booked in calendar mode; None where it is not, or not granted."""
    specific = item.specific_sku_properties
    instance_type = instance_type_of(specific.instance_properties)
    granted = item.status.procurement_status in HELD and item.reservation_mode == CALENDAR
    if not granted or instance_type is None:
        return None
    return Reservation(
        name=item.name,
        pool=_pool(last(item.zone), instance_type),
        nodes=specific.total_count,
        from_at=time_of(item.time_window.start_time),
        until_at=time_of(item.time_window.end_time),
        bound=True,
        made=False,
    )


def _of_future(held: Reservation, future: Reservation) -> Reservation:
    """A reservation that has begun, with the time for which it was booked."""
    until_at = held.until_at or future.until_at
    return replace(held, from_at=future.from_at, until_at=until_at, bound=True)


def _pool(zone: str, instance_type: str) -> Pool:
    return Pool("gcp", region_of(zone), zone, instance_type, CapacityType.RESERVED)


def _offer(held: Sequence[Reservation], now: datetime) -> Offer:
    """Of a pool's reservations, sorted by their beginning.

    The one with the most room of those that can be used now, else the first; but only until the
    first of them that has nodes ends, as ours may be in it.
    """
    usable = [each for each in held if _usable(each, now)]
    told = max(usable, key=lambda each: (each.nodes, each.end_at), default=held[0])
    ends_at = min((each.end_at for each in usable if each.used), default=ENDLESS)
    until_at = min(told.end_at, ends_at)
    return Offer(
        pool=told.pool,
        price_usd_per_hour=Estimate.exact(
            0.0, Basis.LISTED, f"reservation {told.name}: paid for whether it is used or not", now
        ),
        hazard_per_hour=NEVER_INTERRUPTED,
        nodes_available=told.nodes,
        from_at=told.from_at,
        until_at=None if until_at == ENDLESS else until_at,
    )
