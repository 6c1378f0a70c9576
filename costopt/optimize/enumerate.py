"""Enumeration of the configurations of all jobs, with a reason for every offer left out.

Limits that a gang meets or violates alone are applied here: the share of one zone, nodes, hourly
dollars, kilowatts and quotas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from costopt.domain.job import Job
from costopt.domain.limits import ROUNDING, Resource
from costopt.domain.market import InstanceType, Pool
from costopt.domain.plan import Rejection
from costopt.domain.policy import Limits
from costopt.domain.transfers import mean_kept_checkpoints
from costopt.optimize.configuration_table import StartupCosts, build_table, terms_of
from costopt.optimize.configurations import (
    ConfigurationRows,
    ConfigurationTable,
    GangSizes,
    add_power_caps,
    enumerate_rows,
    fits_available_nodes,
    gang_busy_kw,
    gang_sizes,
    gang_sum,
    offer_row_counts,
)
from costopt.optimize.demand import Demand
from costopt.optimize.gang_times import GangTimes
from costopt.optimize.limits import all_quotas
from costopt.optimize.offer_columns import OfferColumns, stored_locations
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest, Quota
from costopt.optimize.screening import OfferScreen
from costopt.optimize.speeds import DistinctGangs, scaling_efficiencies
from costopt.optimize.zone_spreads import Mask

MAX_PAID_TO_USEFUL_RATIO = 1e6
"""Paid hours per useful hour beyond which a configuration is said never to get the work done."""

Rejections = tuple[Rejection, ...]

T = TypeVar("T")


class TableEnumerator:
    """The tables of the jobs of one request.

    What jobs have in common is computed once, and their tables share those columns: none may be
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

        Rejection codes besides those of ``costopt.market.screening``: ``hazard_unknown``,
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
        where = stored_locations(job), job.cache, mean_kept_checkpoints(job)
        group = job.resources.gpus_per_group if job.elastic else None
        starts = (job.overhead_s, replace(job.checkpoint, uri=""), group, where)
        gangs = self._once(("gangs", within), lambda: DistinctGangs.of(columns, rows))
        phases = tuple(phase.throughput for phase in job.phases)
        scaling = self._once(
            ("scaling", within, job.throughput, phases), lambda: scaling_efficiencies(gangs, job)
        )
        terms = self._once(
            ("terms", within, starts, scaling),
            lambda: terms_of(
                columns,
                gangs,
                scaling,
                rows,
                self._startup_costs(job, gangs, screened.usable),
                job.checkpoint.interval_s,
                request,
            ),
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

    def _startup_costs(
        self, job: Job, gangs: DistinctGangs, usable: NDArray[np.int64]
    ) -> StartupCosts:
        fetched = (figure[usable] for figure in self._screening.fetched(job))
        return StartupCosts(GangTimes.of(gangs.distinct, job), *fetched)

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


Refusal = tuple[str, str, NDArray[np.int64]]
"""(code, reason, the rows that break a limit)."""


def gang_limits(
    columns: OfferColumns, rows: ConfigurationRows, request: PlanRequest, job: Job
) -> Iterator[Refusal]:
    """Yield the refusals of all limits of the policy and the job, and of all quotas of its tenant.

    The job's own limit is its dollars per hour.
    """
    limits = request.policy.limits
    if columns.reserved.any():
        reason = "the reservation has fewer nodes than the smallest gang"
        yield "capacity", reason, np.flatnonzero(~_within_reservation(columns, rows))
    if limits.max_zone_share is not None:
        reason = f"more than {limits.max_zone_share:.0%} of the nodes would stand in one zone"
        yield "zone_share", reason, np.flatnonzero(~_within_zone_share(rows, limits))
    for resource, most in _concurrent_limits(limits, job):
        reason = f"the smallest gang {resource.verb} more than {resource.text(most)}"
        within = _gang_load(resource, columns, rows) <= most + ROUNDING
        yield "limit", reason, np.flatnonzero(~within)
    quotas = [quota for quota in all_quotas(request) if quota.tenant in (None, job.tenant)]
    if quotas:
        against = _Quotas(columns, rows)
        for quota in quotas:
            yield "quota", f"over the quota {quota.name}", against.broken(quota)


def _concurrent_limits(limits: Limits, job: Job) -> Iterator[tuple[Resource, float]]:
    """The policy's limits on what all nodes hold at a time, and the job's own."""
    for _, resource, most in limits.concurrent():
        yield resource, most
    if job.budget.max_usd_per_hour is not None:
        yield Resource.USD_PER_HOUR, job.budget.max_usd_per_hour


def _gang_load(resource: Resource, columns: OfferColumns, rows: ConfigurationRows) -> Array:
    """What each row's gang holds of the resource. Shape (rows,)."""
    if resource is Resource.KW:
        return gang_busy_kw(rows, columns)
    if resource.per_machine is None:
        return gang_sum(rows, columns.usd_per_hour)
    per_machine = np.array([resource.node_load(one) for one in columns.machines])
    return gang_sum(rows, per_machine[columns.machine] if len(columns) else np.empty(0))


def largest_counted(columns: OfferColumns, request: PlanRequest, job: Job) -> list[set[int]]:
    """Return for each machine the largest gangs that limits on what machines hold allow.

    These are sizes at which the gangs end that a job can have, by the policy, by each quota that
    counts some offer of the machine, and by each reservation.
    """
    sizes: list[set[int]] = [set() for _ in columns.machines]
    limits = [(resource, most) for _, resource, most in request.policy.limits.concurrent()]
    for machine, kind in enumerate(columns.machines):
        each = ((most, _per_machine(resource, kind)) for resource, most in limits)
        sizes[machine].update(_counted_nodes(each))
    for number in np.flatnonzero(columns.reserved & np.isfinite(columns.room_nodes)).tolist():
        sizes[int(columns.machine[number])].add(int(columns.room_nodes[number]))
    quotas = [quota for quota in all_quotas(request) if quota.tenant in (None, job.tenant)]
    for pool, machine in _kinds(columns).items() if quotas else ():
        kind = columns.machines[machine]
        for quota in quotas:
            if quota.matches(pool, kind):
                loads = (
                    (most, quota.node_load(resource, pool, kind))
                    for resource, most in quota.limits()
                    if resource.per_machine is not None
                )
                sizes[machine].update(_counted_nodes(loads))
    return sizes


def _per_machine(resource: Resource, machine: InstanceType) -> float:
    return 0.0 if resource.per_machine is None else resource.node_load(machine)


def _kinds(columns: OfferColumns) -> dict[Pool, int]:
    """One pool of each machine × region × capacity type, and the number of its machine.

    Quotas do not distinguish zones.
    """
    kinds: dict[tuple[object, ...], tuple[Pool, int]] = {}
    for offer, machine in zip(columns.offers, columns.machine.tolist(), strict=True):
        kinds.setdefault((machine, offer.pool.quota_kind), (offer.pool, machine))
    return dict(kinds.values())


def _counted_nodes(loads: Iterable[tuple[float, float]]) -> Iterator[int]:
    """How many nodes each limit allows, given as (maximum, what a node holds)."""
    for most, each in loads:
        if each > 0:
            yield int(most // each)


def _within_reservation(columns: OfferColumns, rows: ConfigurationRows) -> Mask:
    return fits_available_nodes(rows, np.where(columns.reserved, columns.room_nodes, math.inf))


def _within_zone_share(rows: ConfigurationRows, limits: Limits) -> Mask:
    """At most max(1, ⌊share · n⌋) nodes of a gang in a zone: a lone node is in one anyhow."""
    share = limits.max_zone_share or 0.0
    most = rows.nodes.copy()
    most[rows.spread.rows] = rows.spread.largest()
    allowed: Mask = most <= np.maximum(1, np.floor(share * rows.nodes + 1e-9))
    return allowed


class _Quotas:
    """Which rows break a quota; what all quotas look at is worked out once."""

    def __init__(self, columns: OfferColumns, rows: ConfigurationRows) -> None:
        self._columns, self._rows = columns, rows
        first = rows.first()
        self._order = np.argsort(first, kind="stable")
        self._begin = np.searchsorted(first[self._order], np.arange(len(columns) + 1))
        self._loads: dict[Resource, Array] = {}
        self._zones: dict[tuple[str, str], dict[object, list[int]]] = {}
        for number, offer in enumerate(columns.offers):
            pool = offer.pool
            alike = self._zones.setdefault((pool.provider, pool.region), {})
            alike.setdefault(pool.quota_kind, []).append(number)

    def broken(self, quota: Quota) -> NDArray[np.int64]:
        """Return the rows that alone exceed the quota, ascending."""
        counted = self._counted(quota)
        if not len(counted):
            return counted
        breaks = np.zeros(len(counted), dtype=bool)
        for resource, most in quota.limits():
            load = self._load(resource) if quota.commitment is None else self._committed(quota)
            breaks |= ~(load[counted] <= most + ROUNDING)
        return counted[breaks]

    def _committed(self, quota: Quota) -> Array:
        """What each row's gang uses of a commitment. Shape (rows,)."""
        machines, numbers = self._columns.machines, self._columns.machine.tolist()
        each = [
            quota.node_load(Resource.COMMITTED, offer.pool, machines[number])
            for offer, number in zip(self._columns.offers, numbers, strict=True)
        ]
        return gang_sum(self._rows, np.array(each))

    def _counted(self, quota: Quota) -> NDArray[np.int64]:
        """The rows whose nodes count against the quota, ascending."""
        groups = (
            zones
            for (provider, region), alike in self._zones.items()
            if quota.provider in (None, provider) and quota.region in (None, region)
            for zones in alike.values()
        )
        matching = [
            self._order[self._begin[number] : self._begin[number + 1]]
            for zones in groups
            if self._matches(quota, zones[0])
            for number in zones
        ]
        return np.sort(np.concatenate(matching)) if matching else np.empty(0, dtype=np.int64)

    def _matches(self, quota: Quota, number: int) -> bool:
        """Whether the offer counts; zones do not matter to quotas."""
        columns = self._columns
        machine = columns.machines[int(columns.machine[number])]
        return quota.matches(columns.offers[number].pool, machine)

    def _load(self, resource: Resource) -> Array:
        if resource not in self._loads:
            self._loads[resource] = _gang_load(resource, self._columns, self._rows)
        return self._loads[resource]


def filter_rows(
    rows: ConfigurationRows, columns: OfferColumns, refusals: Iterator[Refusal]
) -> tuple[ConfigurationRows, tuple[Rejection, ...]]:
    """Return the rows that violate no limit; an offer's rejection is by what took its last row."""
    rejections: list[Rejection] = []
    left = np.ones(len(rows), dtype=bool)
    times = offer_row_counts(rows, np.arange(len(rows)), len(columns))
    for number in np.flatnonzero(times == 0).tolist():
        reason = "no phase of the job allows a gang of this machine"
        rejections.append(Rejection(columns.offers[number].pool, "gang_size", reason))
    for code, reason, broken in refusals:
        taken = broken[left[broken]]
        if not len(taken):
            continue
        left[taken] = False
        fewer = times - offer_row_counts(rows, taken, len(columns))
        rejections.extend(
            Rejection(columns.offers[number].pool, code, reason)
            for number in np.flatnonzero((times > 0) & (fewer == 0)).tolist()
        )
        times = fewer
    return (rows if left.all() else rows.take(np.flatnonzero(left))), tuple(rejections)
