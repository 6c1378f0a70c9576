"""Nodes that are held for the account and paid for whether they run or not, some for days only.

A pool may have several reservations, and has one offer, of what holds for a launch and for nodes
that run. A launch takes all its nodes from one reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Offer, Pool

NEVER_INTERRUPTED = Estimate.exact(0.0, Basis.LISTED, "reserved nodes are held until its end")
BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


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
    def begin_at(self) -> datetime:
        """``from_at``, for comparing."""
        return self.from_at or BEGINNING_OF_TIME

    @property
    def end_at(self) -> datetime:
        """``until_at``, for comparing."""
        return self.until_at or END_OF_TIME

    def usable(self, now: datetime) -> bool:
        """Whether a launch may name it."""
        return self.made and self.begin_at <= now < self.end_at


def reservation_offers(held: Iterable[Reservation], now: datetime) -> tuple[Offer, ...]:
    """An offer for each pool that has a reservation which has not ended. A node costs no more."""
    by_pool: dict[Pool, list[Reservation]] = {}
    for each in sorted(held, key=lambda each: (each.begin_at, each.name)):
        if now < each.end_at:
            by_pool.setdefault(each.pool, []).append(each)
    return tuple(_offer(each, now) for each in by_pool.values())


def select_reservation(
    held: Iterable[Reservation], pool: Pool, nodes: int, now: datetime
) -> Reservation | None:
    """The reservation that a launch of so many nodes must name: of those with room for all the one
    that lasts longest, and of these the fullest.

    Where none has room one is named all the same, for the launch may be the repetition of one that
    took the room.
    """
    there = [each for each in held if each.pool == pool and each.usable(now)]
    return max(
        there, key=lambda each: (each.nodes >= nodes, each.end_at, -each.nodes), default=None
    )


def _offer(held: Sequence[Reservation], now: datetime) -> Offer:
    """Of a pool's reservations, sorted by their beginning.

    The one with the most room of those that can be used now, else the first; but only until the
    first of them that has nodes ends, as ours may be in it.
    """
    usable = [each for each in held if each.usable(now)]
    told = max(usable, key=lambda each: (each.nodes, each.end_at), default=held[0])
    ends_at = min((each.end_at for each in usable if each.used), default=END_OF_TIME)
    until_at = min(told.end_at, ends_at)
    return Offer(
        pool=told.pool,
        price_usd_per_hour=Estimate.exact(
            0.0, Basis.LISTED, f"reservation {told.name}: paid for whether it is used or not", now
        ),
        hazard_per_hour=NEVER_INTERRUPTED,
        nodes_available=told.nodes,
        from_at=told.from_at,
        until_at=None if until_at == END_OF_TIME else until_at,
    )
