"""The menus of all jobs: whole tables where these are small, else shortlists that grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.fleet.capacity import Capacity
from costopt.optimize.fleet.menu import Menu, units_per_held_hour
from costopt.optimize.fleet.shortlist import shortlist
from costopt.optimize.model import JobPart
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.tariff import Outlook, Tariff

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
        self._empty = capacity.empty()
        self._tariffs = [Tariff.of(outlook, p.table, request.policy.objective) for p in parts]
        size = sum(len(part.table) for part in parts) * len(outlook.slots)
        self.whole = size <= WHOLE
        self._floors: dict[int, Array] = {}
        self._menus = [self._build(job, self._rows(job)) for job in range(len(parts))]

    def __len__(self) -> int:
        return len(self._menus)

    def __getitem__(self, job: int) -> Menu:
        return self._menus[job]

    def all_worth(self, job: int, work_price: Array) -> Menu:
        """Every row of the job's table that is worth anything in any slot at these prices of work.

        No path of positive value uses another one, whatever shared limits cost.
        """
        if self.whole:
            return self._menus[job]
        part = self._parts[job]
        everything = np.arange(len(part.table))
        worth = (work_price[:, None] * units_per_held_hour(part, everything)).max(axis=0)
        keep = (worth > self._floor(job)) | part.table.running
        return self._build(job, np.flatnonzero(keep))

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
        return shortlist(self._request, part, self._tariffs[job])

    def _build(self, job: int, rows: Rows) -> Menu:
        menu = Menu.of(self._parts[job], self._outlook, self._tariffs[job], rows)
        fits = self._capacity.allowed(menu, self._empty)
        return menu if fits.all() else menu.narrowed(fits)

    def _floor(self, job: int) -> Array:
        """(R,): a held hour of each row costs no less than this in any slot."""
        if job not in self._floors:
            tariff, table = self._tariffs[job], self._parts[job].table
            least = tariff.least_score_per_hour(np.arange(len(table)))
            self._floors[job] = least / table.stretch
        return self._floors[job]
