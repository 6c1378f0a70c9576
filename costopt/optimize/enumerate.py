"""From offers to the table of configurations of one job, with a reason for every offer left out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from costopt.domain.job import Job
from costopt.domain.plan import Rejection
from costopt.optimize.caps import add_power_caps
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.fetch import stored_locations
from costopt.optimize.limits import filter_rows, gang_limits, largest_counted
from costopt.optimize.offer_columns import OfferColumns
from costopt.optimize.request import PlanRequest
from costopt.optimize.rows import ConfigurationRows, GangSizes, enumerate_rows, gang_sizes
from costopt.optimize.screening import OfferScreen
from costopt.optimize.table import build_table
from costopt.optimize.terms import ConfigurationTerms, StartupCosts, terms_of

MAX_PAID_TO_USEFUL_RATIO = 1e6
"""Paid hours per useful hour beyond which a configuration is said never to get the work done."""

Rejections = tuple[Rejection, ...]

T = TypeVar("T")


class TableEnumerator:
    """The tables of the jobs of one request.

    What jobs have in common is worked out once, and their tables share those columns: none may be
    written to.
    """

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._screening = OfferScreen(request)
        self._columns = OfferColumns.of(self._screening.offers, request)
        self._known: dict[Hashable, object] = {}

    def table(self, demand: Demand) -> tuple[ConfigurationTable, Rejections]:
        """The configurations that the job, the policy and the quotas allow, alone, at any time,
        and the offers left out. Of large gangs there is a ladder of sizes (``Job.gang_sizes``).

        Rejection codes besides those of ``costopt.market.screen``: ``hazard_unknown``,
        ``hazard_invalid``, ``hazard_too_high``, ``power_unknown`` (where its energy counts),
        ``power_invalid``, ``carbon_unknown``, ``transfer_unknown``, ``dated`` (its time is over, or
        does not meet the job's), ``gang_size``, ``capacity`` (a reservation too small),
        ``zone_share``, ``quota`` and ``limit``.
        """
        request, job = self._request, demand.job
        screened = self._screening.screen(demand)
        usable = screened.usable.tobytes()
        columns = self._once(("columns", usable), lambda: self._columns.take(screened.usable))
        ends = self._once(
            ("ends", usable, job.tenant), lambda: largest_counted(columns, request, job)
        )
        sizes = tuple(
            gang_sizes(machine, demand, also)
            for machine, also in zip(columns.machines, ends, strict=True)
        )
        within = ("rows", usable, sizes, job.tenant, job.budget.max_usd_per_hour)
        rows, refused = self._once(within, lambda: self._rows(columns, sizes, job))
        save = job.checkpoint
        starts = (job.overhead_s, save.interval_s, save.save_s, stored_locations(job))
        terms = self._once(
            ("terms", within, starts), lambda: self._terms(columns, rows, demand, screened.usable)
        )
        table = build_table(terms, demand, request.policy)
        hopeful = table.paid_units_per_hour * MAX_PAID_TO_USEFUL_RATIO > table.speed * 3600
        if hopeful.all():
            return table, screened.rejections + refused
        hopeless = _hopeless(table, hopeful)
        return table.take(hopeful), screened.rejections + refused + hopeless

    def _rows(
        self, columns: OfferColumns, sizes: GangSizes, job: Job
    ) -> tuple[ConfigurationRows, Rejections]:
        limits = self._request.policy.limits
        rows = add_power_caps(enumerate_rows(columns, limits, sizes), columns, limits)
        return filter_rows(rows, columns, gang_limits(columns, rows, self._request, job))

    def _terms(
        self,
        columns: OfferColumns,
        rows: ConfigurationRows,
        demand: Demand,
        usable: NDArray[np.int64],
    ) -> ConfigurationTerms:
        job = demand.job
        fetched = (figure[usable] for figure in self._screening.fetched(job))
        starts = StartupCosts(job.overhead_s, *fetched)
        return terms_of(columns, rows, starts, job.checkpoint, self._request.policy)

    def _once(self, key: Hashable, made: Callable[[], T]) -> T:
        """What was made for an equal key before, else what ``made`` makes."""
        if key not in self._known:
            self._known[key] = made()
        return self._known[key]  # type: ignore[return-value]


def _hopeless(table: ConfigurationTable, hopeful: NDArray[np.bool_]) -> Rejections:
    lost = np.setdiff1d(table.offer, np.append(table.offer[hopeful], -1))
    reason = "interrupted so often that the work never gets done"
    return tuple(
        Rejection(table.offers[number].pool, "hazard_too_high", reason) for number in lost.tolist()
    )
