"""Configurations of one job: capacity pools × gang sizes × zone spreads × power caps.

A configuration is a pool, or an even spread over a region's zones, with a number of nodes. A table
holds all of one job's as columns, so that a thousand pools × sixteen gang sizes are priced in
milliseconds. Row i is one configuration; every column is an array over rows. Power caps are further
rows: the same gang once more under each limit of its GPUs' power.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.policy import Limits, Objective
from costopt.optimize.demand import Demand
from costopt.optimize.offer_columns import UNCAPPED, OfferColumns
from costopt.optimize.rates import Array
from costopt.optimize.zone_spreads import Mask, Parts, ZoneSpreads


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConfigurationColumns:
    """What is known of configurations besides their speeds, each an array of shape (rows,).

    ``usd_per_hour``, ``peak_kw``, ``busy_kw`` and ``idle_kw`` (at the meter) are of the whole gang,
    the first where no node waits for the others; ``gco2e_per_kwh`` is NaN where unknown. ``hazard``
    is interruptions of the gang per hour, with the ends of its 90 % interval. ``noticed`` tells
    whether their notice is longer than a save, and ``lossless`` whether they take no work.
    ``interval_s`` is the time between saves, ``risky_interval_s`` the same if no notice came,
    ``unsaved_h`` the hours for which work may be unsaved where the deadline is near.
    ``calendar`` are the calendar hours that are expected for a paid hour: the rest are waits for
    capacity of any pool at about the price. ``score_per_hour`` is the objective of a paid hour,
    ``start_score`` that of a start. ``now`` tells whether the gang could start at once.

    Where the power is unknown ``busy_kw``, ``idle_kw`` and ``power_error`` are NaN, and so is the
    energy of forecasts. ``kwh_per_hour`` and ``kwh_per_start``, which solvers read, are 0 there:
    such a row is only in the table of a job for which nothing counts energy.

    ``usd_per_hour`` includes ``moving_usd_per_hour``: what restarts after interruptions and saves
    are expected to pay for moving data between regions.

    ``cap_w`` is the power limit of each GPU, NaN for none. ``start_h`` are the hours from a launch
    until new work is done: start-up, restore and the transfer of data, and before them the longest
    wait for capacity, ``wait_h``, which costs nothing; ``transfer_usd`` the dollars of that
    transfer at each start. ``restore_h`` is what later starts take longer, where the first has no
    checkpoint to load. ``firm`` rows are those that a deadline may rest on. ``from_h`` and
    ``until_h`` bound the hours from now in which the gang can be used (−∞, ∞: no bound), which
    ``now`` does not regard. ``steady`` tells that what is available now is so over the whole
    horizon, as in reserved pools. ``stopped`` is the share of the gang that an interruption stops
    until other nodes have started, ``lag_s`` what it costs the whole gang besides; ``save_s`` is
    that of ``GangTimes``.
    """

    usd_per_hour: Array
    peak_kw: Array
    busy_kw: Array
    idle_kw: Array
    gco2e_per_kwh: Array
    power_error: Array
    hazard: Array
    hazard_low: Array
    hazard_high: Array
    noticed: Mask
    lossless: Mask
    interval_s: Array
    risky_interval_s: Array
    unsaved_h: Array
    save_s: Array
    stopped: Array
    lag_s: Array
    availability: Array
    firm: Mask
    now: Mask
    calendar: Array
    score_per_hour: Array
    usd_per_start: Array
    kwh_per_hour: Array
    kwh_per_start: Array
    start_score: Array
    cap_w: Array
    start_h: Array
    restore_h: Array
    wait_h: Array
    transfer_usd: Array
    moving_usd_per_hour: Array
    from_h: Array
    until_h: Array
    steady: Mask

    @property
    def node_usd_per_hour(self) -> Array:
        """Return the dollars of an hour in which no data move, shape (rows,)."""
        return self.usd_per_hour - self.moving_usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationTable(ConfigurationColumns):
    """Columns over configurations of one job.

    ``offer`` is the number of the offer, or −1 where ``spread`` gives the parts. ``speed`` is
    units/s without interruptions, with the ends of its 90 % interval. ``paid_units_per_hour`` is
    the expected work of a paid hour; ``stretch`` the calendar hours to hold for a paid hour at the
    policy's on-time risk. ``gang`` numbers what must be started: rows with the same gang differ
    only in ``cap_w``, and change without a start. ``pace`` has shape (stages, rows): the speed in a
    stage over ``speed``, 0 where the row cannot run it.
    """

    offers: tuple[Offer, ...]
    spread: ZoneSpreads
    offer: NDArray[np.int64]
    nodes: NDArray[np.int64]
    speed: Array
    speed_low: Array
    speed_high: Array
    running: NDArray[np.bool_]
    paid_units_per_hour: Array
    stretch: Array
    gang: NDArray[np.int64]
    pace: Array

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def billed_startup_h(self) -> Array:
        """Return the paid hours of a start, shape (rows,): ``start_h`` less the wait."""
        return self.start_h - self.wait_h

    @property
    def restart_s(self) -> Array:
        """Return the seconds of the gang that an interruption costs besides lost work."""
        return 3600 * (self.start_h + self.restore_h) * self.stopped + self.lag_s

    def scored_by(self, objective: Objective) -> Self:
        """Return the table scored by another objective; unknown carbon counts as none."""
        carbon = np.nan_to_num(self.gco2e_per_kwh)
        return replace(
            self,
            score_per_hour=scored(objective, self.usd_per_hour, self.kwh_per_hour, carbon),
            start_score=scored(objective, self.usd_per_start, self.kwh_per_start, carbon),
        )

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """Return the table of these rows in this order; ``rows`` holds row numbers or is a mask."""
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        columns = {
            f.name: getattr(self, f.name)[..., places]
            for f in fields(self)
            if f.name not in ("offers", "spread")
        }
        return replace(self, spread=self.spread.take(places), **columns)

    def first(self) -> NDArray[np.int64]:
        """Return the offer number of each row, or of a spread's first part, shape (rows,)."""
        first = self.offer.copy()
        first[self.spread.rows] = self.spread.primary_offer()
        return first

    def parts(self, row: int) -> tuple[tuple[Pool, int], ...]:
        """Return the (pool, nodes) of each part of a row; one pair for a single pool."""
        numbers = self.spread[row] or ((int(self.offer[row]), int(self.nodes[row])),)
        return tuple((self.offers[number].pool, nodes) for number, nodes in numbers)

    def row_offers(self, row: int) -> tuple[Offer, ...]:
        """Return the offer of each part of a row; one for a single pool."""
        numbers = self.spread[row] or ((int(self.offer[row]), 0),)
        return tuple(self.offers[number] for number, _ in numbers)

    def label(self, row: int) -> str:
        """Return a row in words: ``4 × aws/us-east-1/…``."""
        return " + ".join(f"{nodes} × {pool}" for pool, nodes in self.parts(row))


def scored(objective: Objective, usd: Array, kwh: Array, gco2e_per_kwh: Array) -> Array:
    """Return the objective of these dollars and kWh by row; unknown carbon makes it unknown."""
    score: Array = objective.usd * usd + objective.usd_per_kwh * kwh
    if objective.usd_per_tonne_co2e > 0:
        score = score + objective.usd_per_tonne_co2e * kwh * gco2e_per_kwh / 1e6
    return score


GangSizes = tuple[tuple[int, ...], ...]
"""The allowed numbers of nodes, by the number of the machine."""


@dataclass(frozen=True, slots=True, eq=False)
class ConfigurationRows:
    """The rows without their figures: which offer or spread, how many nodes, under which power cap.

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
        """Return rows without power caps, each of them a gang of its own."""
        return cls(offer, nodes, spread, np.arange(len(nodes)), np.full(len(nodes), UNCAPPED))

    @classmethod
    def concatenate(cls, some: Sequence[Self]) -> Self:
        """Return the rows of all the given ones, one after the other in this order."""
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
        """Return the rows with these numbers, in this order."""
        return type(self)(
            self.offer[rows],
            self.nodes[rows],
            self.spread.take(rows),
            self.gang[rows],
            self.cap[rows],
        )

    @property
    def parts_count(self) -> NDArray[np.int64]:
        """Return the number of pools of each row, shape (rows,)."""
        return np.maximum(self.spread.counts, 1)

    def under_cap(self, cap: int) -> Self:
        """Return the same gangs, all under cap number ``cap`` of their nodes."""
        return replace(self, cap=np.full(len(self.nodes), cap))

    def parts(self, row: int) -> Parts:
        """Return the (offer number, nodes) of each part of a row."""
        return self.spread[row] or ((int(self.offer[row]), int(self.nodes[row])),)

    def first(self) -> NDArray[np.int64]:
        """Return the offer number of each row, or of a spread's first part, shape (rows,)."""
        first = self.offer.copy()
        first[self.spread.rows] = self.spread.primary_offer()
        return first


def enumerate_rows(columns: OfferColumns, limits: Limits, sizes: GangSizes) -> ConfigurationRows:
    """Return the rows of single pools at every gang size, then those of the spreads."""
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
    """Return the numbers of nodes worth comparing that the job and any of its stages allow.

    The sizes of the living gang and of ``also`` are among them where they are allowed.
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
    """Return in how many of the rows ``picked`` each offer occurs, shape (offers,)."""
    plain = rows.offer[picked]
    parts = rows.spread.take(picked).offer
    return np.bincount(plain[plain >= 0], minlength=offers) + np.bincount(parts, minlength=offers)


def gang_sum(rows: ConfigurationRows, per_node: Array) -> Array:
    """Return the sum of a per-node figure over each row's gang, shape (rows,).

    ``per_node`` has shape (offers,).
    """
    spread = rows.spread
    total = (per_node[rows.offer] if len(per_node) else np.zeros(len(rows))) * rows.nodes
    total[spread.rows] = spread.total(per_node[spread.offer] * spread.nodes)
    return total


def gang_hazard(rows: ConfigurationRows, per_pool: Array) -> Array:
    """Return the interruptions per hour of each row's gang, shape (rows,).

    The nodes of a pool go together, so that a gang of one pool is interrupted as often as the pool.
    ``per_pool`` has shape (offers,).
    """
    spread = rows.spread
    rate = per_pool[rows.offer] if len(per_pool) else np.zeros(len(rows))
    rate[spread.rows] = spread.total(per_pool[spread.offer])
    return rate


def gang_max(rows: ConfigurationRows, figure: Array) -> Array:
    """Return the largest of a figure over the offers of each row, shape (rows,).

    ``figure`` has shape (offers,).
    """
    largest: Array = figure[rows.offer] if len(rows) else np.empty(0)
    largest[rows.spread.rows] = rows.spread.most(figure[rows.spread.offer])
    return largest


def fits_available_nodes(rows: ConfigurationRows, room_nodes: Array) -> Mask:
    """Return whether each part of a row is within its offer's available nodes, shape (rows,).

    ``room_nodes`` has shape (offers,).
    """
    spread = rows.spread
    if not len(rows):
        return np.zeros(0, dtype=bool)
    fits: Mask = rows.nodes <= room_nodes[rows.offer]
    fits[spread.rows] = spread.every(spread.nodes <= room_nodes[spread.offer])
    return fits


def add_power_caps(
    rows: ConfigurationRows, columns: OfferColumns, limits: Limits
) -> ConfigurationRows:
    """Return ``rows``, then each under every power cap of its nodes if the policy allows caps.

    The nodes of a spread are of one machine type, so that the caps of the first one are those of
    all.
    """
    if not limits.power_caps or not len(rows) or not columns.caps.any():
        return rows
    counts = columns.caps[rows.first()]
    capped = [rows.take(np.flatnonzero(counts > cap)).under_cap(cap) for cap in range(counts.max())]
    return ConfigurationRows.concatenate([rows, *capped])


def power_cap_w(rows: ConfigurationRows, columns: OfferColumns) -> Array:
    """Return the power limit of each GPU in watts, shape (rows,); NaN where there is none."""
    return _of_first(rows, columns.cap_w)


def capped_speed_share(rows: ConfigurationRows, columns: OfferColumns) -> Array:
    """Return the share of the uncapped speed that each row reaches, shape (rows,)."""
    return _of_first(rows, columns.cap_speed)


def gang_busy_kw(rows: ConfigurationRows, columns: OfferColumns) -> Array:
    """Return the kW at the meter of each gang while it trains under its cap, shape (rows,)."""
    if not len(rows):
        return np.empty(0)
    spread = rows.spread
    total: Array = columns.busy_kw[rows.cap, rows.offer] * rows.nodes
    cap = np.repeat(rows.cap, spread.counts)
    total[spread.rows] = spread.total(columns.busy_kw[cap, spread.offer] * spread.nodes)
    return total


def is_energy_saving(
    rows: ConfigurationRows,
    columns: OfferColumns,
    busy_kw: Array,
    drawn: Array,
    idle_kw: Array,
    restarting: Array,
) -> Mask:
    """Return whether each row's cap lowers kWh per unit of work; true for rows without a cap.

    ``drawn`` is the share of its busy power that a node draws in its gang; ``busy_kw`` (of that
    share) and ``idle_kw`` are of the gangs, ``restarting`` is the share of the time that goes to
    restarts, all of shape (rows,) like the result. Restarts draw the same with a cap, and so do the
    other parts of the node: a low cap, which lets them draw for longer, may cost energy.
    """
    uncapped: Mask = rows.cap == UNCAPPED
    if uncapped.all():
        return uncapped
    uncapped_kw = gang_sum(rows, columns.busy_kw[UNCAPPED]) * drawn
    idle_kwh = idle_kw * restarting
    capped = (busy_kw * (1 - restarting) + idle_kwh) / capped_speed_share(rows, columns)
    lower: Mask = capped < uncapped_kw * (1 - restarting) + idle_kwh
    return lower | uncapped


def _of_first(rows: ConfigurationRows, by_cap: Array) -> Array:
    """A figure of the cap of each row's first offer. Shape (rows,)."""
    return np.asarray(by_cap[rows.cap, rows.first()], dtype=float)
