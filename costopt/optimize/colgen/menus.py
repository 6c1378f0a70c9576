"""The menus of all jobs: whole tables where these are small, otherwise shortlists that grow.

A shortlist holds the rows of a job's table that can be worth choosing. At a price of work a row is
worth price · units − score an hour. A shortlist holds the few best rows at each of a range of
prices and in each of a few blocks of slots, and the best row of each GPU model in each region, for
where a quota excludes the best ones. The bound is still proven on the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.colgen.capacity import NodeSlotPrices, SharedCapacity
from costopt.optimize.colgen.menu import JobMenu, PricingDuals, units_per_held_hour
from costopt.optimize.colgen.pricing import has_numba
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.slots import open_hours

SMALL_JOB_COUNT = 5
"""Jobs up to which compiled paths would not make up for loading the compiler."""

MAX_FULL_CELLS = 400_000
"""Rows × slots over all jobs up to which every menu is the whole table."""

BLOCK = 8
"""Slots whose least costs are compared with a row's worth, after those of all slots."""

Rows = NDArray[np.int64]


class Menus:
    """What each job may run, by number of the job."""

    def __init__(
        self,
        request: PlanRequest,
        parts: Sequence[PlannedJob],
        outlook: ForecastTable,
        capacity: SharedCapacity,
    ) -> None:
        self._request, self._parts = request, parts
        self._outlook, self._capacity = outlook, capacity
        self._compiled = len(parts) > SMALL_JOB_COUNT and has_numba()
        self._tariffs = _tariffs(request, parts, outlook)
        size = sum(len(part.table) for part in parts) * len(outlook.slots)
        self.whole = size <= MAX_FULL_CELLS
        self._groups = _groups(request, parts)
        widths = (len(outlook.slots), BLOCK) if outlook.slots else ()
        self._blocks = [_blocks(outlook, width) for width in widths]
        self._menus = [self._build(job, self._rows(job)) for job in range(len(parts))]

    def __len__(self) -> int:
        return len(self._menus)

    def __getitem__(self, job: int) -> JobMenu:
        return self._menus[job]

    def keep_all(self, job: int, work_price: Array, node_prices: NodeSlotPrices | None) -> JobMenu:
        """Return a menu of every table row that is worth anything in any slot at these prices.

        No path of positive value uses another row.
        """
        if self.whole:
            return self._menus[job]
        rows = np.arange(len(self._parts[job].table))
        for blocks in self._blocks:
            worth = self._is_worth(job, rows, blocks, work_price, node_prices)
            rows = rows[worth | self._parts[job].table.running[rows]]
        return self._build(job, rows)

    def _is_worth(
        self,
        job: int,
        rows: Rows,
        blocks: _Blocks,
        work_price: Array,
        node_prices: NodeSlotPrices | None,
    ) -> NDArray[np.bool_]:
        """(rows,): whether an hour is worth more than the least it costs in some block of slots."""
        part = self._parts[job]
        hours = open_hours(self._outlook.slots, part.demand)
        own = np.maximum.reduceat(hours, blocks.starts) > 0
        tariff = replace(self._tariffs[job], outlook=blocks.least)
        worth = (work_price[:, None] * units_per_held_hour(part, rows)).max(axis=0)
        worth = worth - tariff.score_per_hour(rows) / part.table.stretch[rows]
        if node_prices is not None:
            slot_h = np.array([slot.hours for slot in self._outlook.slots])[:, None]
            least = np.where(hours[:, None] > 0, node_prices.held / slot_h, np.inf)
            least = np.minimum.reduceat(least, blocks.starts, axis=0)
            worth = worth - _of_nodes(part, tariff, rows, np.where(own[:, None], least, 0.0))
        found: NDArray[np.bool_] = (worth[own] > 0).any(axis=0)
        return found

    def extend_by_reduced_cost(
        self, job: int, menu: JobMenu, prices: PricingDuals, rows: Rows
    ) -> None:
        """Put ``rows`` of a larger menu on the job's, and its groups' best at these prices."""
        if not self.whole:
            best = best_rows_by_group(self._groups[job], menu, prices)
            self.extend(job, np.union1d(rows, best))

    def extend(self, job: int, rows: Rows) -> None:
        """Put these table rows on the job's menu, with all the power caps of their gangs."""
        table = self._parts[job].table
        missing = np.setdiff1d(rows, self._menus[job].rows)
        if len(missing):
            gangs = np.union1d(table.gang[missing], table.gang[self._menus[job].rows])
            self._menus[job] = self._build(job, np.flatnonzero(np.isin(table.gang, gangs)))

    def _rows(self, job: int) -> Rows:
        part = self._parts[job]
        if self.whole:
            return np.arange(len(part.table))
        return shortlist_rows(self._groups[job], part, self._tariffs[job])

    def _build(self, job: int, rows: Rows) -> JobMenu:
        menu = JobMenu.of(
            self._parts[job], self._outlook, self._tariffs[job], rows, compiled=self._compiled
        )
        fits = self._capacity.ever_allowed(menu)
        return menu if fits.all() else menu.narrowed(np.broadcast_to(fits, menu.pay.shape))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Neighbouring slots that are looked at together: the first of each block, its least costs."""

    starts: NDArray[np.int64]
    least: ForecastTable


def _blocks(outlook: ForecastTable, width: int) -> _Blocks:
    starts = np.arange(0, len(outlook.slots), width)
    return _Blocks(starts, outlook.least(starts))


def _of_nodes(part: PlannedJob, tariff: SlotCosts, rows: Rows, by_offer: Array) -> Array:
    """(…, rows) of a figure per node (…, offers of the request), summed over each row's nodes."""
    spread = part.table.spread.take(rows)
    total: Array = by_offer[:, tariff.column_of(rows)] * part.table.nodes[rows]
    if len(spread.offer):
        total[:, spread.rows] = spread.total(
            by_offer[:, tariff.column[spread.offer]] * spread.nodes
        )
    return total


def _tariffs(
    request: PlanRequest, parts: Sequence[PlannedJob], outlook: ForecastTable
) -> list[SlotCosts]:
    """Of every job; those whose tables share their offers share what follows from them."""
    shared: dict[int, SlotCosts] = {}
    tariffs: list[SlotCosts] = []
    for part in parts:
        like = shared.get(id(part.table.offer))
        if like is None or like.table.offers != part.table.offers:
            like = SlotCosts.of(outlook, part.table, request.policy.objective)
            shared[id(part.table.offer)] = like
        tariffs.append(replace(like, table=part.table))
    return tariffs


def _groups(request: PlanRequest, parts: Sequence[PlannedJob]) -> list[NDArray[np.int32]]:
    shared: dict[int, tuple[PlannedJob, NDArray[np.int32]]] = {}
    groups: list[NDArray[np.int32]] = []
    for part in parts:
        like = shared.get(id(part.table.offer))
        if like is None or like[0].table.offers != part.table.offers:
            like = (part, groups_of(request, part))
            shared[id(part.table.offer)] = like
        groups.append(like[1])
    return groups


BLOCKS = 6
"""Blocks of neighbouring slots that are looked at, each with its least costs."""

PRICES = 8
REACH = 8.0
"""Prices of work that are looked at: from the cheapest unit's cost to this many times as much."""

BEST = 4
"""Rows kept per price and block of slots."""


def shortlist_rows(groups: NDArray[np.int32], part: PlannedJob, tariff: SlotCosts) -> Rows:
    """Return the table rows of the shortlist, ascending; with every gang all its power caps."""
    table = part.table
    everything = np.arange(len(table))
    score, usable = _least(part, tariff, everything)
    kept = [np.flatnonzero(table.running)]
    for number in range(len(part.demand.stages)):
        units = units_per_held_hour(part, everything)[number]
        able = units > 0
        if able.any():
            kept.extend(_of_stage(score, usable & able, units, groups))
    gangs = np.unique(table.gang[np.unique(np.concatenate(kept))])
    return np.flatnonzero(np.isin(table.gang, gangs))


def best_rows_by_group(groups: NDArray[np.int32], menu: JobMenu, prices: PricingDuals) -> Rows:
    """Return the table rows that are worth the most of their group in some block of slots."""
    open_slots = np.flatnonzero(menu.usable.any(axis=1))
    if not len(open_slots):
        return np.empty(0, dtype=np.int64)
    own = slice(int(open_slots[0]), int(open_slots[-1]) + 1)
    starts_at = _block_starts(own.stop - own.start)
    group = groups[menu.rows]
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff([*starts, len(order)])
    kept: list[Rows] = []
    for price, units in zip(prices.work.tolist(), menu.units, strict=True):
        worth = np.outer(menu.hours[own], price * units) - menu.pay[own]
        if prices.shared is not None:
            worth -= prices.shared[own]
        worth = np.maximum.reduceat(worth, starts_at, axis=0)
        best = np.maximum.reduceat(worth[:, order], starts, axis=1)
        at_best = (worth[:, order] >= np.repeat(best, sizes, axis=1)) & (worth[:, order] > 0)
        kept.append(order[at_best.any(axis=0)])
    return menu.rows[np.unique(np.concatenate(kept))]


def _least(part: PlannedJob, tariff: SlotCosts, rows: Rows) -> tuple[Array, NDArray[np.bool_]]:
    """(blocks, rows): the least objective of a held hour in a few blocks of the slots that count,
    and whether the row is usable at the end of each.
    """
    open_slots = np.flatnonzero(open_hours(tariff.outlook.slots, part.demand) > 0)
    starts = _block_starts(len(open_slots))
    blocks = replace(tariff, outlook=tariff.outlook.at_slots(open_slots).least(starts))
    ends = tariff.at_slots(open_slots[np.append(starts[1:], len(open_slots)) - 1])
    score = blocks.score_per_hour(rows) / part.table.stretch[rows]
    return score, ends.usable(part.demand, rows)


def _block_starts(slots: int) -> NDArray[np.int64]:
    """The first slots of a few blocks of about the same length."""
    starts: NDArray[np.int64] = np.arange(min(BLOCKS, slots)) * slots // max(min(BLOCKS, slots), 1)
    return starts


def groups_of(request: PlanRequest, part: PlannedJob) -> NDArray[np.int32]:
    """Return the number of each row's group: GPU model × region × capacity type, shape (R,)."""
    table = part.table
    names: dict[object, int] = {}
    of_offer = [
        names.setdefault(
            (o.pool.region, request.machines[o.pool].gpu.model, o.pool.capacity_type), len(names)
        )
        for o in table.offers
    ]
    return np.array(of_offer, dtype=np.int32)[table.first()]


def _of_stage(
    score: Array, usable: NDArray[np.bool_], units: Array, groups: NDArray[np.int32]
) -> list[Rows]:
    per_unit = np.where(usable, score, np.inf) / np.maximum(units, 1e-300)
    cheapest = max(float(per_unit.min(initial=np.inf, where=usable)), 1e-300)
    if not np.isfinite(cheapest):
        return []
    kept: list[Rows] = []
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for n, price in enumerate(np.geomspace(cheapest * 1.001, cheapest * REACH, PRICES).tolist()):
        worth = np.where(usable, price * units - score, -np.inf)
        top = np.argpartition(-worth, min(BEST, worth.shape[1] - 1), axis=1)[:, :BEST]
        kept.append(top[np.take_along_axis(worth, top, axis=1) > 0])
        if n in (PRICES // 4, PRICES // 2):
            mean = worth.mean(axis=0)[order]
            best = np.maximum.reduceat(mean, starts)
            at_best = (mean >= np.repeat(best, np.diff([*starts, len(order)]))) & (mean > 0)
            kept.append(order[at_best])
    kept.append(order[_cheapest_of_groups(per_unit, order, starts)])
    return kept


def _cheapest_of_groups(per_unit: Array, order: Rows, starts: Rows) -> NDArray[np.bool_]:
    """The cheapest per unit of every group, wherever it is usable at all."""
    mean = per_unit.min(axis=0)[order]
    best = np.minimum.reduceat(mean, starts)
    cheapest: NDArray[np.bool_] = (
        mean <= np.repeat(best, np.diff([*starts, len(order)]))
    ) & np.isfinite(mean)
    return cheapest
