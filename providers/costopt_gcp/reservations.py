"""Reservations of the project, and what it has booked by the calendar.

Only those that a launch must name: on-demand nodes use the others automatically. A future
reservation in calendar mode
(https://cloud.google.com/compute/docs/instances/future-reservations-calendar-mode) becomes a
reservation when it begins, and Google deletes its nodes when it ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Any

from costopt.domain.market import (
    CapacityType,
    Offer,
    Pool,
    Reservation,
    reservation_offers,
    select_reservation,
)
from costopt.provider.cache import TtlCache
from costopt.provider.tags import time_of
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.machine_types import instance_type_of, last, region_of

MINUTES_5_S = 300.0
USABLE_S = 3600.0
HELD = frozenset({"APPROVED", "COMMITTED", "FULFILLED", "PROVISIONING"})
CALENDAR = "CALENDAR"


class Reservations:
    """The project's reservations, fetched every five minutes."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[None, tuple[Reservation, ...]] = TtlCache(MINUTES_5_S, USABLE_S)

    def offers(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[Offer, ...]:
        """Return a reserved offer for each pool of the region with one of these types.

        Raise ProviderError.
        """
        held = [
            each
            for each in self._kept.get(None, now, self._ask)
            if each.pool.region == region and each.pool.instance_type in instance_types
        ]
        return reservation_offers(held, now)

    def of(self, pool: Pool, nodes: int, now: datetime) -> Reservation | None:
        """Return the reservation that a launch of so many nodes must name. Raise ProviderError.

        Each call asks Google: a reservation's name is unknown until it begins.
        """
        return select_reservation(self._ask(), pool, nodes, now)

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
        return tuple(held.values())

    def _items(self, collection: str, resource: str) -> list[Any]:
        request = {"project": self._clients.project}
        with asking(f"compute.{resource}.list", "all zones"):
            pages = self._clients.of(collection).aggregated_list(
                request=request, **self._clients.reading()
            )
            return [item for _, scoped in pages for item in getattr(scoped, collection)]


def _read(item: Any) -> Reservation | None:
    """Return a reservation that can be used by naming it; None for others."""
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
    """Return a booking in calendar mode; None if it is not one, or not granted."""
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
    """Return a reservation that has begun, with the time for which it was booked."""
    until_at = held.until_at or future.until_at
    return replace(held, from_at=future.from_at, until_at=until_at, bound=True)


def _pool(zone: str, instance_type: str) -> Pool:
    return Pool("gcp", region_of(zone), zone, instance_type, CapacityType.RESERVED)
