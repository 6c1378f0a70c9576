"""The limits and budgets that jobs share, as arrays: prices by row, remaining capacity by row.

L limits, T slots, O offers of the request, N rows of a menu. Limits on what instance types hold
(nodes, GPUs, vCPUs, the nodes of a pool) have a load per node; those of dollars and of kW a load
per row. Budgets limit the totals of whole schedules: of a job, of a tenant, of the account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costopt.domain.limits import Resource
from costopt.domain.policy import Objective
from costopt.optimize.colgen.menu import JobMenu
from costopt.optimize.colgen.schedule import JobSchedule
from costopt.optimize.limits import LimitIndex, SharedLimit, total_limits
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.slots import Slot

TOLERANCE = 1e-6
"""Relative slip allowed where a load is held against its limit."""


@dataclass(frozen=True, slots=True)
class NodeSlotPrices:
    """The price of a node in a slot, and of one that has to be launched for it, by offer.

    Each has shape (T, O): slot × offer.
    """

    held: Array
    launched: Array


class SharedCapacity:
    """The shared limits of a request over the slots of its plan."""

    def __init__(
        self, request: PlanRequest, slots: Sequence[Slot], limits: Sequence[SharedLimit]
    ) -> None:
        self.request, self.slots, self.limits = request, tuple(slots), tuple(limits)
        near = np.array([slot.near for slot in slots], dtype=bool)
        self.active = np.array([near | (not limit.near) for limit in limits]).reshape(
            -1, len(slots)
        )
        self.most = np.array([limit.most for limit in limits])
        self.by_row = [i for i, one in enumerate(limits) if one.resource.per_machine is None]
        self.counting = [i for i, one in enumerate(limits) if i not in self.by_row and not one.near]
        self._by_dollars = [i for i in self.by_row if limits[i].resource is Resource.USD_PER_HOUR]
        self._index = LimitIndex(request, limits)
        self._known: dict[tuple[str, int], Array] = {}

    @cached_property
    def pool_limits(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the limits of single pools and the offers that they bound, as parallel arrays."""
        column = {offer.pool: i for i, offer in enumerate(self.request.offers)}
        pairs = [
            (number, column[limit.pool])
            for number, limit in enumerate(self.limits)
            if limit.near and limit.pool is not None
        ]
        found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    @cached_property
    def per_node(self) -> Array:
        """Return what a node of each offer adds to each limit, shape (L, O): limit × offer.

        It is 0 for limits that are not counted by node.
        """
        loads = np.zeros((len(self.limits), len(self.request.offers)))
        families: dict[object, list[int]] = {}
        for number, offer in enumerate(self.request.offers):
            families.setdefault(offer.pool.quota_kind, []).append(number)
        for number in self.counting:
            if self.limits[number].pool is not None:
                loads[number] = [
                    offer.pool == self.limits[number].pool for offer in self.request.offers
                ]
        alike = [i for i in self.counting if self.limits[i].pool is None]
        for members in families.values():
            pool = self.request.offers[members[0]].pool
            machine = self.request.machines.get(pool)
            if machine is not None:
                column = np.array([self.limits[i].node_load(pool, machine) for i in alike])
                loads[np.ix_(alike, members)] = column[:, None]
        return loads

    def usage(self, menu: JobMenu, schedule: JobSchedule) -> Array:
        """Return everything that a schedule holds, shape (entries, 3).

        The three columns are the limit, the slot and the load.
        """
        rows, place = np.unique(schedule.row, return_inverse=True)
        loads = [self._loads(menu.part, row) for row in rows.tolist()]
        counts = np.array([len(each) for each in loads], dtype=np.int64)[place]
        entries = np.empty((int(counts.sum()), 3))
        entries[:, 1] = np.repeat(schedule.slot, counts)
        if len(entries):
            entries[:, ::2] = np.concatenate([loads[n] for n in place.tolist()])
        for row in rows.tolist() if self._by_dollars else ():
            held = schedule.slot[schedule.row == row]
            entries = np.concatenate((entries, *self._dollars(menu, held, row)))
        active: NDArray[np.bool_] = self.active[
            entries[:, 0].astype(np.int64), entries[:, 1].astype(np.int64)
        ]
        return entries if active.all() else entries[active]

    def _loads(self, part: PlannedJob, row: int) -> Array:
        """(limits, 2): limit and load of a row of a job, where it is not 0, but for dollars, which
        move."""
        key = (part.demand.job.name, row)
        if key not in self._known:
            loads = self._index.loads(part.demand, part.table, row)
            still = [
                each for each in loads if self.limits[each[0]].resource is not Resource.USD_PER_HOUR
            ]
            self._known[key] = np.array(still, dtype=float).reshape(-1, 2)
        return self._known[key]

    def _dollars(self, menu: JobMenu, slots: NDArray[np.int64], row: int) -> Iterator[Array]:
        """As ``usage``, of the limits of dollars per hour, for one row."""
        part = menu.part
        for number in self._by_dollars:
            if self.limits[number].load(self.request, part.demand, part.table, row):
                usd, _ = menu.tariff.usd_at(slots, np.full(len(slots), row))
                yield np.column_stack((np.full(len(slots), float(number)), slots, usd))

    def node_prices(self, duals: Array, tenant: str) -> NodeSlotPrices:
        """Return the prices of nodes at these duals ≥ 0.

        ``duals`` has shape (L, T): limit × slot.
        """
        priced = [i for i in self.counting if duals[i].any() and self._counts(i, tenant)]
        held = duals[priced].T @ self.per_node[priced] if priced else self._free()
        launched = self._free()
        limits, offers = self.pool_limits
        launched[:, offers] = duals[limits].T
        return NodeSlotPrices(held, launched)

    def _free(self) -> Array:
        return np.zeros((len(self.slots), len(self.request.offers)))

    def _counts(self, number: int, tenant: str) -> bool:
        """Whether a limit counts the jobs of this tenant."""
        return self.limits[number].tenant in (None, tenant)

    def shared_prices(self, menu: JobMenu, node_prices: NodeSlotPrices, duals: Array) -> Array:
        """Return what each row pays in each slot for what it shares, shape (T, N): slot × row."""
        prices = np.zeros((len(menu.hours), len(menu)))
        held = menu.open_slots
        prices[held] = _gang_sums(menu, node_prices.held[held], menu.nodes, menu.spreads.nodes)
        some = np.flatnonzero(node_prices.launched.any(axis=1))
        if len(some):
            launched = node_prices.launched[some]
            prices[some] += _gang_sums(menu, launched, menu.launches, menu.spread_launches)
        tenant = menu.part.demand.job.tenant
        for number in self.by_row:
            if duals[number].any() and self._counts(number, tenant):
                prices += duals[number][:, None] * self._row_loads(menu, number)
        return prices

    def loads(self, menu: JobMenu) -> Array:
        """Return what each row holds of the limits that count nodes, shape (L, N): limit × row."""
        tenant = menu.part.demand.job.tenant
        counts = np.array([self._counts(i, tenant) for i in range(len(self.limits))], dtype=bool)
        loads = _gang_sums(menu, self.per_node, menu.nodes, menu.spreads.nodes)
        return np.where(counts[:, None], loads, 0.0)

    def _row_loads(self, menu: JobMenu, number: int) -> Array:
        """(T, N): the load of each row on a limit of dollars per hour or kW."""
        part, limit = menu.part, self.limits[number]
        present = np.array(
            [limit.load(self.request, part.demand, part.table, row) for row in menu.rows.tolist()]
        )
        if limit.resource is Resource.KW:
            return np.broadcast_to(present, menu.pay.shape)
        return np.where(present > 0, menu.tariff.usd_per_hour(menu.rows), 0.0)

    def allowed(self, menu: JobMenu, left: Array) -> NDArray[np.bool_]:
        """Return which rows fit the remainder of each limit, shape (T, N): slot × row.

        ``left`` is that remainder, shape (L, T): limit × slot.
        """
        offers, place = np.unique(
            np.concatenate((menu.column, menu.spread_column)), return_inverse=True
        )
        room, pools = self._node_room(left, menu.part.demand.job.tenant, offers)
        column, part_column = place[: len(menu)], place[len(menu) :]
        spread = menu.spreads
        fits: NDArray[np.bool_] = menu.launches <= pools[:, column]
        if len(spread):
            part_fits = menu.spread_launches <= pools[:, part_column]
            fits[:, menu.spread_places] = np.logical_and.reduceat(
                part_fits, spread.first[:-1], axis=1
            )
        fits &= menu.nodes <= room[:, column]
        for number in self.by_row:
            if self._counts(number, menu.part.demand.job.tenant):
                most = left[number][:, None] * (1 + TOLERANCE)
                fits &= self._row_loads(menu, number) <= most
        return fits

    def ever_allowed(self, menu: JobMenu) -> NDArray[np.bool_]:
        """Return which rows fit each limit while no other job runs, shape (N,)."""
        tenant = menu.part.demand.job.tenant
        room = np.full(len(self.request.offers), np.inf)
        for number in self.counting:
            if self._counts(number, tenant):
                members = np.flatnonzero(self.per_node[number])
                most = self.most[number] / self.per_node[number, members] * (1 + TOLERANCE)
                room[members] = np.minimum(room[members], most)
        fits: NDArray[np.bool_] = menu.nodes <= room[menu.column]
        for number in self.by_row:
            if self._counts(number, tenant) and self.limits[number].resource is Resource.KW:
                max_kw = float(self.most[number]) * (1 + TOLERANCE)
                fits &= self._row_loads(menu, number)[0] <= max_kw
        return fits

    def _node_room(
        self, left: Array, tenant: str, offers: NDArray[np.int64]
    ) -> tuple[Array, Array]:
        """(T, offers): nodes that the counting limits leave, and that each pool leaves."""
        shape = (len(self.slots), len(offers))
        room, pools = np.full(shape, np.inf), np.full(shape, np.inf)
        per_node = self.per_node[:, offers]
        for number in np.flatnonzero(per_node.any(axis=1)).tolist():
            if self._counts(number, tenant):
                members = np.flatnonzero(per_node[number])
                fits = left[number][:, None] / per_node[number, members] * (1 + TOLERANCE)
                room[:, members] = np.minimum(room[:, members], fits)
        limits, bounded = self.pool_limits
        if len(limits):
            limit_of = np.full(len(self.request.offers), -1)
            limit_of[bounded] = limits
            own = limit_of[offers]
            has = np.flatnonzero(own >= 0)
            most = np.where(self.active[own[has]], left[own[has]], np.inf)
            pools[:, has] = most.T * (1 + TOLERANCE)
        return room, pools

    def empty(self) -> Array:
        """Return the remainder of every limit when no job runs, shape (L, T): limit × slot.

        It is ∞ where the limit does not hold.
        """
        return np.where(self.active, self.most[:, None], np.inf)


def _gang_sums(
    menu: JobMenu, by_offer: Array, nodes: NDArray[np.int64], part_nodes: NDArray[np.int64]
) -> Array:
    """(T, N) of a figure per node (T, O), summed over each row's nodes."""
    sums: Array = by_offer[:, menu.column] * nodes
    if len(menu.spreads):
        part_sums = by_offer[:, menu.spread_column] * part_nodes
        sums[:, menu.spread_places] = menu.spreads.total(part_sums)
    return sums


IN_USD, IN_KWH = Objective(), Objective(usd=0.0, usd_per_kwh=1.0)

MIN_AMOUNT = 1e-9
"""A budget of nothing is held as this, so that shares of it are numbers."""


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """``jobs`` together come to at most ``most`` when they are scored by ``weights``."""

    name: str
    most: float
    jobs: frozenset[int]
    weights: Objective = IN_USD

    @property
    def in_kwh(self) -> bool:
        """Return whether it is a budget of kWh."""
        return self.weights == IN_KWH

    def spent(self, job: int, schedule: JobSchedule) -> float:
        """Return what a schedule of the job comes to."""
        return float(schedule.scored_by(self.weights).sum()) if job in self.jobs else 0.0


def shared_budgets(request: PlanRequest, parts: Sequence[PlannedJob]) -> tuple[SharedBudget, ...]:
    """Return every budget of the request."""
    found: list[SharedBudget] = []
    for number, part in enumerate(parts):
        own, only = part.demand.job.budget, frozenset((number,))
        name = part.demand.job.name
        if own.max_usd is not None:
            found.append(SharedBudget(f"max_usd of {name} ($)", max(own.max_usd, MIN_AMOUNT), only))
        if own.max_kwh is not None:
            found.append(
                SharedBudget(f"max_kwh of {name} (kWh)", max(own.max_kwh, MIN_AMOUNT), only, IN_KWH)
            )
    for total in total_limits(request):
        counted = (n for n, part in enumerate(parts) if total.counts(part.demand.job))
        found.append(
            SharedBudget(f"{total.name} ($)", max(total.max_usd, MIN_AMOUNT), frozenset(counted))
        )
    everyone = frozenset(range(len(parts)))
    found.extend(
        SharedBudget("ceiling", max(ceiling.most, MIN_AMOUNT), everyone, ceiling.weights)
        for ceiling in request.ceilings
    )
    return tuple(found)
