"""The menus of all jobs: whole tables where these are small, else shortlists that grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.fleet.capacity import Capacity, NodePrices
from costopt.optimize.fleet.menu import Menu, units_per_held_hour
from costopt.optimize.fleet.path import can_compile
from costopt.optimize.fleet.prices import Prices
from costopt.optimize.fleet.shortlist import best_of_groups, groups_of, shortlist
from costopt.optimize.job_part import JobPart
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.tariff import Outlook, Tariff

FEW = 5
"""Jobs up to which compiled paths would not make up for loading the compiler."""

WHOLE = 400_000
"""Rows × slots over all jobs up to which every menu is the whole table."""

Rows = NDArray[np.int64]


class Menus:
    """What each job may run, by number of the job."""

    def __init__(
        self,
        request: PlanRequest,
        parts: Sequence[JobPart],
        outlook: Outlook,
        capacity: Capacity,
    ) -> None:
        self._request, self._parts = request, parts
        self._outlook, self._capacity = outlook, capacity
        self._compiled = len(parts) > FEW and can_compile()
        self._tariffs = _tariffs(request, parts, outlook)
        size = sum(len(part.table) for part in parts) * len(outlook.slots)
        self.whole = size <= WHOLE
        self._groups = _groups(request, parts)
        self._menus = [self._build(job, self._rows(job)) for job in range(len(parts))]

    def __len__(self) -> int:
        return len(self._menus)

    def __getitem__(self, job: int) -> Menu:
        return self._menus[job]

    def all_worth(self, job: int, work_price: Array, node_prices: NodePrices | None) -> Menu:
        """Every row of the job's table that is worth anything in any slot at these prices.

        No path of positive value uses another one.
        """
        if self.whole:
            return self._menus[job]
        part = self._parts[job]
        everything = np.arange(len(part.table))
        worth = (work_price[:, None] * units_per_held_hour(part, everything)).max(axis=0)
        worth = worth - self._floor(job)
        if node_prices is not None:
            worth = worth - self._least_shared(job, node_prices)
        return self._build(job, np.flatnonzero((worth > 0) | part.table.running))

    def _least_shared(self, job: int, node_prices: NodePrices) -> Array:
        """(R,): an hour of each row pays no less than this for its nodes in any slot."""
        part, tariff = self._parts[job], self._tariffs[job]
        hours = np.array([slot.hours for slot in self._outlook.slots])
        own = np.array([slot.hours_of(part.demand) > 0 for slot in self._outlook.slots])
        least = (node_prices.held / hours[:, None])[own].min(axis=0, initial=np.inf)
        by_offer = np.where(np.isfinite(least), least, 0.0)[tariff.column]
        table, spread = part.table, part.table.spread
        shared: Array = by_offer[table.first()] * table.nodes
        shared[spread.rows] = spread.total(by_offer[spread.offer] * spread.nodes)
        return shared

    def extend_by_worth(self, job: int, menu: Menu, prices: Prices, rows: Rows) -> None:
        """Put ``rows`` of a larger menu on the job's, and its groups' best at these prices."""
        if not self.whole:
            best = best_of_groups(self._groups[job], menu, prices)
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
        return shortlist(self._groups[job], part, self._tariffs[job])

    def _build(self, job: int, rows: Rows) -> Menu:
        menu = Menu.of(
            self._parts[job], self._outlook, self._tariffs[job], rows, compiled=self._compiled
        )
        fits = self._capacity.ever_allowed(menu)
        return menu if fits.all() else menu.narrowed(np.broadcast_to(fits, menu.pay.shape))

    def _floor(self, job: int) -> Array:
        """(R,): a held hour of each row costs no less than this in any slot."""
        tariff, table = self._tariffs[job], self._parts[job].table
        least: Array = tariff.least_score_per_hour(np.arange(len(table))) / table.stretch
        return least


def _tariffs(request: PlanRequest, parts: Sequence[JobPart], outlook: Outlook) -> list[Tariff]:
    """Of every job; those whose tables share their offers share what follows from them."""
    shared: dict[int, Tariff] = {}
    tariffs: list[Tariff] = []
    for part in parts:
        like = shared.get(id(part.table.offer))
        if like is None or like.table.offers != part.table.offers:
            like = Tariff.of(outlook, part.table, request.policy.objective)
            shared[id(part.table.offer)] = like
        tariffs.append(replace(like, table=part.table))
    return tariffs


def _groups(request: PlanRequest, parts: Sequence[JobPart]) -> list[NDArray[np.int32]]:
    shared: dict[int, tuple[JobPart, NDArray[np.int32]]] = {}
    groups: list[NDArray[np.int32]] = []
    for part in parts:
        like = shared.get(id(part.table.offer))
        if like is None or like[0].table.offers != part.table.offers:
            like = (part, groups_of(request, part))
            shared[id(part.table.offer)] = like
        groups.append(like[1])
    return groups
