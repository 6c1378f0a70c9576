"""Limits on a gang by itself: zone share, nodes, hourly dollars, kilowatts, quotas."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costopt.domain.job import Job
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.domain.plan import Rejection
from costopt.domain.policy import Limits
from costopt.optimize.caps import gang_busy_kw
from costopt.optimize.offer_columns import OfferColumns
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest, Quota
from costopt.optimize.rows import (
    ConfigurationRows,
    fits_available_nodes,
    gang_sum,
    offer_row_counts,
)
from costopt.optimize.shared import all_quotas
from costopt.optimize.spreads import Mask

ROUNDING_KW = 1e-9

Refusal = tuple[str, str, NDArray[np.int64]]
"""(code, reason, the rows that break a limit)."""


def gang_limits(
    columns: OfferColumns, rows: ConfigurationRows, request: PlanRequest, job: Job
) -> Iterator[Refusal]:
    """Every limit of the policy, the job's dollars per hour, and every quota for its tenant."""
    limits = request.policy.limits
    if columns.reserved.any():
        reason = "the reservation has fewer nodes than the smallest gang"
        yield "capacity", reason, np.flatnonzero(~_within_reservation(columns, rows))
    if limits.max_zone_share is not None:
        reason = f"more than {limits.max_zone_share:.0%} of the nodes would stand in one zone"
        yield "zone_share", reason, np.flatnonzero(~_within_zone_share(rows, limits))
    if limits.max_nodes is not None:
        reason = f"the policy allows {limits.max_nodes} nodes"
        yield "limit", reason, np.flatnonzero(rows.nodes > limits.max_nodes)
    per_hour = [limits.max_usd_per_hour, job.budget.max_usd_per_hour]
    for most in (each for each in per_hour if each is not None):
        reason = f"the smallest gang costs more than {most:g} $/h"
        within = gang_sum(rows, columns.usd_per_hour) <= most
        yield "limit", reason, np.flatnonzero(~within)
    if limits.max_kw is not None:
        reason = f"the smallest gang draws more than {limits.max_kw:g} kW"
        within = gang_busy_kw(rows, columns) <= limits.max_kw + ROUNDING_KW
        yield "limit", reason, np.flatnonzero(~within)
    quotas = [quota for quota in all_quotas(request) if quota.tenant in (None, job.tenant)]
    if quotas:
        against = _Quotas(columns, rows)
        for quota in quotas:
            yield "quota", f"over the quota {quota.name}", against.broken(quota)


def largest_counted(columns: OfferColumns, request: PlanRequest, job: Job) -> list[set[int]]:
    """Return for each machine the largest gangs that limits on nodes, GPUs and vCPUs allow.

    These are sizes at which the gangs end that a job can have, by the policy, by each quota that
    counts some offer of the machine, and by each reservation.
    """
    sizes: list[set[int]] = [set() for _ in columns.machines]
    if request.policy.limits.max_nodes is not None:
        for each in sizes:
            each.add(request.policy.limits.max_nodes)
    for number in np.flatnonzero(columns.reserved & np.isfinite(columns.room_nodes)).tolist():
        sizes[int(columns.machine[number])].add(int(columns.room_nodes[number]))
    quotas = [quota for quota in all_quotas(request) if quota.tenant in (None, job.tenant)]
    for pool, machine in _kinds(columns).items() if quotas else ():
        kind = columns.machines[machine]
        for quota in quotas:
            if quota.matches(pool, kind):
                sizes[machine].update(_counted_nodes(quota, kind))
    return sizes


def _kinds(columns: OfferColumns) -> dict[Pool, int]:
    """One pool of each machine × region × capacity type, and the number of its machine.

    Quotas do not distinguish zones.
    """
    kinds: dict[tuple[object, ...], tuple[Pool, int]] = {}
    for offer, machine in zip(columns.offers, columns.machine.tolist(), strict=True):
        pool = offer.pool
        kinds.setdefault((machine, pool.region, pool.capacity_type), (pool, machine))
    return dict(kinds.values())


def _counted_nodes(quota: Quota, machine: InstanceType) -> Iterator[int]:
    if quota.max_nodes is not None:
        yield quota.max_nodes
    if quota.max_gpus is not None:
        yield quota.max_gpus // machine.gpu_count
    if quota.max_vcpus is not None and machine.vcpus > 0:
        yield int(quota.max_vcpus // machine.vcpus)


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
        self._first = rows.first()
        self._order = np.argsort(self._first, kind="stable")
        self._begin = np.searchsorted(self._first[self._order], np.arange(len(columns) + 1))
        self._zones: dict[tuple[str, str], dict[tuple[str, CapacityType], list[int]]] = {}
        for number, offer in enumerate(columns.offers):
            pool = offer.pool
            alike = self._zones.setdefault((pool.provider, pool.region), {})
            alike.setdefault((pool.instance_type, pool.capacity_type), []).append(number)

    def broken(self, quota: Quota) -> NDArray[np.int64]:
        """The rows that by themselves are more than the quota allows, ascending."""
        counted = self._counted(quota)
        if not len(counted):
            return counted
        rows = self._rows
        nodes, first = rows.nodes[counted], self._first[counted]
        machines = self._columns.machines
        machine = self._columns.machine[first]
        breaks = np.zeros(len(counted), dtype=bool)
        if quota.max_nodes is not None:
            breaks |= nodes > quota.max_nodes
        if quota.max_gpus is not None:
            gpus = np.array([one.gpu_count for one in machines])
            breaks |= nodes * gpus[machine] > quota.max_gpus
        if quota.max_vcpus is not None:
            vcpus = np.array([one.vcpus for one in machines])
            breaks |= nodes * vcpus[machine] > quota.max_vcpus
        if quota.max_usd_per_hour is not None:
            breaks |= ~(self._usd_per_hour()[counted] <= quota.max_usd_per_hour)
        if quota.max_kw is not None:
            breaks |= ~(self._busy_kw()[counted] <= quota.max_kw + ROUNDING_KW)
        return counted[breaks]

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

    def _usd_per_hour(self) -> Array:
        return gang_sum(self._rows, self._columns.usd_per_hour)

    def _busy_kw(self) -> Array:
        return gang_busy_kw(self._rows, self._columns)


def filter_rows(
    rows: ConfigurationRows, columns: OfferColumns, refusals: Iterator[Refusal]
) -> tuple[ConfigurationRows, tuple[Rejection, ...]]:
    """Rows that break no limit; an offer is refused by the one that took its last row."""
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
