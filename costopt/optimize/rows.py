"""The bare rows of a table of configurations: which offers, how many nodes of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.market import InstanceType, Offer
from costopt.optimize.configuration import Parts
from costopt.optimize.demand import Demand
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest

Mask = NDArray[np.bool_]

UNCAPPED = -1
"""In place of the number of a power cap: none."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The bare rows: which offer or spread, how many nodes, under which power cap.

    ``gang`` is the same for rows that differ only in their cap; ``cap`` is the number of the cap
    among those of the row's nodes, or ``UNCAPPED``.
    """

    offer: NDArray[np.int64]
    nodes: NDArray[np.int64]
    spread: tuple[Parts, ...]
    gang: NDArray[np.int64]
    cap: NDArray[np.int64]

    @classmethod
    def uncapped(
        cls, offer: NDArray[np.int64], nodes: NDArray[np.int64], spread: tuple[Parts, ...]
    ) -> Self:
        """Rows of which each is a gang of its own."""
        return cls(offer, nodes, spread, np.arange(len(nodes)), np.full(len(nodes), UNCAPPED))

    @classmethod
    def concatenate(cls, some: Sequence[Self]) -> Self:
        """The rows of all, in this order."""
        return cls(
            np.concatenate([rows.offer for rows in some]),
            np.concatenate([rows.nodes for rows in some]),
            tuple(parts for rows in some for parts in rows.spread),
            np.concatenate([rows.gang for rows in some]),
            np.concatenate([rows.cap for rows in some]),
        )

    def take(self, mask: Mask) -> Self:
        """The rows where ``mask`` is true."""
        kept = np.flatnonzero(mask)
        return type(self)(
            self.offer[kept],
            self.nodes[kept],
            tuple([self.spread[i] for i in kept.tolist()]),
            self.gang[kept],
            self.cap[kept],
        )

    def under_cap(self, cap: int) -> Self:
        """The same gangs, all under cap number ``cap`` of their nodes."""
        return replace(self, cap=np.full(len(self.nodes), cap))

    def parts(self, row: int) -> Parts:
        """(offer number, nodes) of a row."""
        return self.spread[row] or ((int(self.offer[row]), int(self.nodes[row])),)

    def first(self) -> NDArray[np.int64]:
        """The offer of each row, or the first one of its spread."""
        first = self.offer.copy()
        spreads = np.flatnonzero(first < 0)
        first[spreads] = [self.spread[row][0][0] for row in spreads.tolist()]
        return first


def rows_of(offers: tuple[Offer, ...], request: PlanRequest, demand: Demand) -> Rows:
    """Plain pools at every gang size, then the spreads."""
    counts: dict[InstanceType, tuple[int, ...]] = {}
    numbers: list[int] = []
    nodes: list[int] = []
    for number, offer in enumerate(offers):
        machine = request.machines[offer.pool]
        if machine not in counts:
            counts[machine] = _gang_sizes(machine, demand)
        numbers.extend([number] * len(counts[machine]))
        nodes.extend(counts[machine])
    plain = len(nodes)
    spreads = list(_spreads(offers, request, counts)) if _spread_matters(offers, request) else []
    return Rows.uncapped(
        np.array(numbers + [-1] * len(spreads), dtype=np.int64),
        np.array(nodes + [sum(n for _, n in parts) for parts in spreads], dtype=np.int64),
        ((),) * plain + tuple(spreads),
    )


def _gang_sizes(machine: InstanceType, demand: Demand) -> tuple[int, ...]:
    return tuple(
        n
        for n in demand.job.resources.node_counts(machine)
        if any(stage.min_nodes <= n <= stage.max_nodes for stage in demand.stages)
    )


def _spread_matters(offers: tuple[Offer, ...], request: PlanRequest) -> bool:
    """At constant prices a spread costs no less than its cheapest zone alone.

    So it is only worth a row where the policy asks for it or a zone may be too small.
    """
    share = request.policy.limits.max_zone_share
    return (share is not None and share < 1) or any(o.nodes_available is not None for o in offers)


def _spreads(
    offers: tuple[Offer, ...],
    request: PlanRequest,
    counts: Mapping[InstanceType, tuple[int, ...]],
) -> Iterable[Parts]:
    """Even spreads over the cheapest two, three, … zones of one region × type × market."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, offer in enumerate(offers):
        pool = offer.pool
        groups[pool.provider, pool.region, pool.instance_type, pool.capacity_type].append(number)
    for members in groups.values():
        members.sort(key=lambda i: (price_of(offers[i]), offers[i].pool))
        sizes = counts[request.machines[offers[members[0]].pool]]
        for zones in range(2, len(members) + 1):
            for size in sizes:
                if size >= zones:
                    each, over = divmod(size, zones)
                    yield tuple((members[z], each + (z < over)) for z in range(zones))


def price_of(offer: Offer) -> float:
    """Dollars per node-hour of an offer that passed the screen."""
    assert offer.price_usd_per_hour is not None
    return offer.price_usd_per_hour.value


def mentioned(rows: Rows) -> set[int]:
    """The offers that any row uses."""
    spread = {number for parts in rows.spread for number, _ in parts}
    return (set(rows.offer.tolist()) | spread) - {-1}


def gang_sum(rows: Rows, per_node: Array) -> Array:
    """The sum of a per-node figure over each row's gang."""
    total = np.where(rows.offer >= 0, per_node[rows.offer] if len(per_node) else 0.0, 0.0)
    total = total * rows.nodes
    for row in np.flatnonzero(rows.offer < 0):
        total[row] = sum(per_node[number] * nodes for number, nodes in rows.spread[row])
    return total


def most_of(rows: Rows, figure: Array) -> Array:
    """The largest of a figure over the offers of each row."""
    first = rows.first()
    largest: Array = figure[first] if len(first) else np.empty(0)
    for row in np.flatnonzero(rows.offer < 0).tolist():
        largest[row] = max(figure[number] for number, _ in rows.spread[row])
    return largest


def fits_room(rows: Rows, room_nodes: Array) -> Mask:
    """Whether each zone's part of a row is within its offer's room."""
    fits = np.zeros(len(rows.nodes), dtype=bool)
    plain = rows.offer >= 0
    if plain.any():
        fits[plain] = rows.nodes[plain] <= room_nodes[rows.offer[plain]]
    for row in np.flatnonzero(~plain).tolist():
        fits[row] = all(nodes <= room_nodes[number] for number, nodes in rows.spread[row])
    return fits
