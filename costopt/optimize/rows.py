"""The bare rows of a table of configurations: which offers, how many nodes of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.market import InstanceType
from costopt.domain.policy import Limits
from costopt.optimize.demand import Demand
from costopt.optimize.offer_columns import UNCAPPED, OfferColumns
from costopt.optimize.rates import Array
from costopt.optimize.spreads import Mask, Parts, ZoneSpreads

GangSizes = tuple[tuple[int, ...], ...]
"""The allowed numbers of nodes, by the number of the machine."""


@dataclass(frozen=True, slots=True, eq=False)
class ConfigurationRows:
    """The bare rows: which offer or spread, how many nodes, under which power cap.

    ``gang`` is the same for rows that differ only in their cap; ``cap`` is the number of the cap
    among those of the row's nodes, or ``UNCAPPED``.
    """

    offer: NDArray[np.int64]
    nodes: NDArray[np.int64]
    spread: ZoneSpreads
    gang: NDArray[np.int64]
    cap: NDArray[np.int64]

    @classmethod
    def uncapped(
        cls, offer: NDArray[np.int64], nodes: NDArray[np.int64], spread: ZoneSpreads
    ) -> Self:
        """Rows of which each is a gang of its own."""
        return cls(offer, nodes, spread, np.arange(len(nodes)), np.full(len(nodes), UNCAPPED))

    @classmethod
    def concatenate(cls, some: Sequence[Self]) -> Self:
        """The rows of all, in this order."""
        return cls(
            np.concatenate([rows.offer for rows in some]),
            np.concatenate([rows.nodes for rows in some]),
            ZoneSpreads.concatenate([rows.spread for rows in some]),
            np.concatenate([rows.gang for rows in some]),
            np.concatenate([rows.cap for rows in some]),
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """These rows, in this order."""
        return type(self)(
            self.offer[rows],
            self.nodes[rows],
            self.spread.take(rows),
            self.gang[rows],
            self.cap[rows],
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
        first[self.spread.rows] = self.spread.primary_offer()
        return first


def enumerate_rows(columns: OfferColumns, limits: Limits, sizes: GangSizes) -> ConfigurationRows:
    """Plain pools at every gang size, then the spreads."""
    of_machine = [np.array(each, dtype=np.int64) for each in sizes]
    counts = np.array([len(each) for each in sizes], dtype=np.int64)
    offer = np.repeat(np.arange(len(columns)), counts[columns.machine])
    plain = [of_machine[number] for number in columns.machine.tolist()]
    spreads = list(_spreads(columns, sizes)) if _spread_matters(columns, limits) else []
    together = np.array([sum(n for _, n in parts) for parts in spreads], dtype=np.int64)
    return ConfigurationRows.uncapped(
        np.concatenate((offer, np.full(len(spreads), -1))),
        np.concatenate((*plain, together)),
        ZoneSpreads.concatenate([ZoneSpreads.of(((),) * len(offer)), ZoneSpreads.of(spreads)]),
    )


def gang_sizes(machine: InstanceType, demand: Demand, also: Iterable[int] = ()) -> tuple[int, ...]:
    """The numbers of nodes worth comparing that the job and any of its stages allow.

    Those of the living gang and of ``also`` are among them where they are allowed.
    """
    bounds = (n for stage in demand.stages for n in (stage.min_nodes, stage.max_nodes))
    living = sum(demand.running.values())
    return tuple(
        n
        for n in demand.job.gang_sizes(machine, (*bounds, living, *also))
        if any(stage.min_nodes <= n <= stage.max_nodes for stage in demand.stages)
    )


def _spread_matters(columns: OfferColumns, limits: Limits) -> bool:
    """At constant prices a spread costs no less than its cheapest zone alone.

    So it is only worth a row where the policy asks for it or a zone may be too small.
    """
    share = limits.max_zone_share
    return (share is not None and share < 1) or bool(np.isfinite(columns.room_nodes).any())


def _spreads(columns: OfferColumns, sizes: GangSizes) -> Iterable[Parts]:
    """Even spreads over the cheapest two, three, … zones of one region × type × market."""
    usd_per_hour = columns.usd_per_hour.tolist()
    for members in _zones(columns).values():
        if len(members) < 2:
            continue
        members.sort(key=lambda i: (usd_per_hour[i], columns.offers[i].pool))
        allowed = sizes[int(columns.machine[members[0]])]
        for zones in range(2, len(members) + 1):
            for size in allowed:
                if size >= zones:
                    each, over = divmod(size, zones)
                    yield tuple((members[z], each + (z < over)) for z in range(zones))


def _zones(columns: OfferColumns) -> Mapping[tuple[object, ...], list[int]]:
    """The offers of each region × type × market."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, offer in enumerate(columns.offers):
        pool = offer.pool
        groups[pool.provider, pool.region, pool.instance_type, pool.capacity_type].append(number)
    return groups


def offer_row_counts(
    rows: ConfigurationRows, picked: NDArray[np.int64], offers: int
) -> NDArray[np.int64]:
    """In how many of the rows ``picked`` each of ``offers`` offers stands."""
    plain = rows.offer[picked]
    parts = rows.spread.take(picked).offer
    return np.bincount(plain[plain >= 0], minlength=offers) + np.bincount(parts, minlength=offers)


def gang_sum(rows: ConfigurationRows, per_node: Array) -> Array:
    """The sum of a per-node figure over each row's gang."""
    spread = rows.spread
    total = (per_node[rows.offer] if len(per_node) else np.zeros(len(rows))) * rows.nodes
    total[spread.rows] = spread.total(per_node[spread.offer] * spread.nodes)
    return total


def gang_max(rows: ConfigurationRows, figure: Array) -> Array:
    """The largest of a figure over the offers of each row."""
    largest: Array = figure[rows.offer] if len(rows) else np.empty(0)
    largest[rows.spread.rows] = rows.spread.most(figure[rows.spread.offer])
    return largest


def fits_available_nodes(rows: ConfigurationRows, room_nodes: Array) -> Mask:
    """Whether each zone's part of a row is within its offer's room."""
    spread = rows.spread
    if not len(rows):
        return np.zeros(0, dtype=bool)
    fits: Mask = rows.nodes <= room_nodes[rows.offer]
    fits[spread.rows] = spread.every(spread.nodes <= room_nodes[spread.offer])
    return fits
