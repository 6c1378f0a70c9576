"""The menus of all jobs: whole tables where these are small, else shortlists that grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.fleet.capacity import NodeSlotPrices, SharedCapacity
from costopt.optimize.fleet.menu import JobMenu, units_per_held_hour
from costopt.optimize.fleet.path import has_numba
from costopt.optimize.fleet.prices import PricingDuals
from costopt.optimize.fleet.shortlist import best_rows_by_group, groups_of, shortlist_rows
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.slots import open_hours
from costopt.optimize.tariff import ForecastTable, SlotCosts

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
        """Every row of the job's table that is worth anything in any slot at these prices.

        No path of positive value uses another one.
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
