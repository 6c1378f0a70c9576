"""The rows of a job's table that are worth a place in its menu, where the whole table is too large.

At a price of work a row is worth price · units − score an hour. Kept are the best few rows of all
at each of a range of prices and in each of a few blocks of slots, and the best of each GPU model
in each region, for where a quota leaves nothing of the best. The bound is still proven on the whole
table.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.fleet.menu import JobMenu, units_per_held_hour
from costopt.optimize.fleet.prices import PricingDuals
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.slots import open_hours
from costopt.optimize.tariff import SlotCosts

BLOCKS = 6
"""Blocks of neighbouring slots that are looked at, each with its least costs."""

PRICES = 8
REACH = 8.0
"""Prices of work that are looked at: from the cheapest unit's cost to this many times as much."""

BEST = 4
"""Rows kept per price and block of slots."""

Rows = NDArray[np.int64]


def shortlist_rows(groups: NDArray[np.int32], part: PlannedJob, tariff: SlotCosts) -> Rows:
    """Table rows, ascending; with every gang all its power caps."""
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
    """Table rows that are worth the most of their group in some block of slots."""
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
    """(R,): GPU model × region × capacity type of each row, numbered."""
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
