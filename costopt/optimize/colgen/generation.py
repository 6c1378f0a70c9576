"""Column generation: prices for what jobs share, and a proven lower bound.

The master problem (``master``) is priced by each job's best path. Prices are smoothed towards those
with the best bound so far (Pessoa et al., doi:10.1287/ijoc.2017.0784), because the raw ones
oscillate. Menus that are shortlists give prices fast; the bound is then proven on the whole tables,
and the rows that these add join the menus.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costopt.optimize.colgen.budget_prices import budget_charge
from costopt.optimize.colgen.capacity import NodeSlotPrices, SharedBudget, SharedCapacity
from costopt.optimize.colgen.master import (
    UNSERVED_PENALTY,
    DualValues,
    MasterProblem,
    ScheduleColumn,
)
from costopt.optimize.colgen.menu import JobMenu, PricingDuals
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.pricing import solve_pricing
from costopt.optimize.colgen.schedule import JobSchedule, schedule_of
from costopt.optimize.planned_job import PlannedJob

SMOOTHING = 0.7
"""The share of the best prices so far in the next ones that are tried."""

PARTIAL_PRICING_SIZES = (4,)
"""Rounds of the first level after which the whole tables are looked at for what menus lack."""

ROUNDS = 40
"""At the most, with limits held over blocks of the same width."""

LEVELS = ((8, 0.03), (3, 0.01), (1, 0.0))
"""Slots in a block, from one level to the next: prices settle on coarse ones first.

With each the gap at which the next begins, unless the one asked for is wider: what limits over
long blocks leave out is more than a narrower gap would bring.
"""


@dataclass(frozen=True, slots=True)
class RelaxationResult:
    """The result of column generation.

    ``bound_usd`` is proven for every plan on these slots; ``columns`` are all that were found.
    """

    bound_usd: float
    duals: DualValues
    columns: tuple[ScheduleColumn, ...]
    build_s: float = 0.0


@dataclass(slots=True)
class _State:
    """What goes from one level to the next: ``bound`` holds on the menus, ``proven`` everywhere."""

    best: DualValues
    bound: float
    pool: list[ScheduleColumn]
    proven: float = -math.inf
    proved: DualValues | None = None
    value: float = math.inf


class ColumnGeneration:
    """The loop of master and pricing problems, which ends at a given time."""

    def __init__(
        self,
        parts: Sequence[PlannedJob],
        menus: Menus,
        capacity: SharedCapacity,
        budgets: Sequence[SharedBudget],
        *,
        gap: float,
        stop_at: float,
        solver: str | None = None,
    ) -> None:
        self._parts, self._menus, self._capacity, self._budgets = parts, menus, capacity, budgets
        self._gap, self._stop_at, self._solver = gap, stop_at, solver
        self._node_prices: dict[str, NodeSlotPrices] = {}
        self._jobs: list[int] = []
        self._unit_usd = 1.0

    def run(
        self,
        alone: Mapping[int, JobSchedule],
        together: Mapping[int, JobSchedule],
        start: DualValues,
        others: Sequence[tuple[int, JobSchedule]] = (),
    ) -> RelaxationResult:
        """Return the relaxation solved from the given schedules and first prices.

        ``alone`` are schedules of jobs as if alone, ``together`` schedules that fit together,
        ``others`` further ones by job. Jobs that are not in ``alone`` are left out.
        """
        self._unit_usd = max(sum(schedule.total_score for schedule in alone.values()), 1e-9)
        self._jobs = sorted(alone)
        known = [*alone.items(), *together.items(), *others]
        pool = [self._column(job, schedule) for job, schedule in known]
        bound, more = self._price(start, exact=False)
        state = _State(start, bound, [*pool, *more])
        master = MasterProblem(
            self._parts, self._capacity, self._budgets, self._unit_usd, self._solver
        )
        master.add_unserved(
            {
                job: UNSERVED_PENALTY * max(s.total_score, 1e-9 * self._unit_usd)
                for job, s in alone.items()
            }
        )
        master.add(state.pool)
        for width, gap in LEVELS:
            if self._level(state, master, width, max(gap, self._gap)) or self._late():
                break
        if state.proved is not state.best:
            self._prove(state)
        return RelaxationResult(state.proven, state.best, tuple(state.pool), master.build_s)

    def bound(self, alone: Mapping[int, JobSchedule], duals: DualValues) -> float:
        """Return the bound that these prices prove for jobs in ``alone``, on the whole tables."""
        self._jobs = sorted(alone)
        return self._price(duals, exact=True)[0]

    def _level(self, state: _State, master: MasterProblem, width: int, gap: float) -> bool:
        """Rounds with limits held over ``width`` slots, until the relaxation is within the gap.

        Returns whether nothing finer is needed.
        """
        for turn in range(ROUNDS):
            found = master.solve(width, self._left_s())
            if found is None or self._late():
                return False
            shares, raw, state.value = found
            columns = self._round(state, raw)
            if width == LEVELS[0][0] and turn in PARTIAL_PRICING_SIZES:
                columns.extend(self._prove(state))
            enough = _close(state.value, state.bound, gap) and master.breaks_nothing(shares, width)
            if enough:
                missed = self._prove(state)
                if _close(state.value, state.proven, self._gap):
                    return width == 1 or not master.shares_anything
                if not missed:
                    return False
                columns.extend(missed)
            master.add(columns)
            state.pool.extend(columns)
            if enough and gap > self._gap and master.shares_anything:
                return False
        return False

    def _round(self, state: _State, raw: DualValues) -> list[ScheduleColumn]:
        """New columns at smoothed prices, and at the master's own where these bring nothing."""
        tried = state.best.towards(raw, 1 - SMOOTHING)
        bound, columns = self._price(tried, exact=False)
        if not self._helps(columns, raw):
            raw_bound, more = self._price(raw, exact=False)
            columns.extend(more)
            if raw_bound > bound:
                bound, tried = raw_bound, raw
        if bound > state.bound:
            state.bound, state.best = bound, tried
        return columns

    def _late(self) -> bool:
        return time.perf_counter() > self._stop_at

    def _left_s(self) -> float:
        return max(0.05, self._stop_at - time.perf_counter())

    def _prove(self, state: _State) -> list[ScheduleColumn]:
        """Prove the best prices' bound on the whole tables; the columns that menus lacked.

        Where menus were shortlists the search goes on from the bound that is proven.
        """
        state.proved = state.best
        if self._menus.whole:
            state.proven = max(state.proven, state.bound)
            return []
        bound, columns = self._price(state.best, exact=True)
        state.proven = max(state.proven, bound)
        state.bound = bound
        return columns

    def _price(self, duals: DualValues, *, exact: bool) -> tuple[float, list[ScheduleColumn]]:
        """The Lagrangian bound at these prices and each job's best schedule."""
        self._node_prices.clear()
        bound = float(-(duals.shared * self._capacity.most[:, None]).sum())
        bound -= sum(
            float(price) * budget.most
            for price, budget in zip(duals.budget, self._budgets, strict=True)
        )
        columns: list[ScheduleColumn] = []
        for job in self._jobs:
            part, work = self._parts[job], duals.work[job]
            menu = self._whole_menu(job, duals) if exact else self._menus[job]
            menu = menu.charged(budget_charge(job, duals.budget, self._budgets))
            prices = self.prices(job, menu, duals)
            path = solve_pricing(menu, prices)
            bound += float(work @ np.array([stage.units for stage in part.demand.stages]))
            bound -= path.value
            if len(path.steps):
                columns.append(self._column(job, schedule_of(menu, path)))
            if exact:
                self._menus.extend_by_reduced_cost(job, menu, prices, menu.rows[path.steps[:, 2]])
        return bound, columns

    def _whole_menu(self, job: int, duals: DualValues) -> JobMenu:
        node_prices = None
        if duals.shared.any():
            node_prices = self._node_prices_of(self._parts[job].demand.job.tenant, duals)
        return self._menus.keep_all(job, duals.work[job], node_prices)

    def _node_prices_of(self, tenant: str, duals: DualValues) -> NodeSlotPrices:
        if tenant not in self._node_prices:
            self._node_prices[tenant] = self._capacity.node_prices(duals.shared, tenant)
        return self._node_prices[tenant]

    def prices(self, job: int, menu: JobMenu, duals: DualValues) -> PricingDuals:
        """Return what a job is paid for work and pays for shared limits, row by row."""
        tenant = self._parts[job].demand.job.tenant
        shared = None
        if duals.shared.any():
            node_prices = self._node_prices_of(tenant, duals)
            shared = self._capacity.shared_prices(menu, node_prices, duals.shared)
        return PricingDuals(duals.work[job], shared)

    def _column(self, job: int, schedule: JobSchedule) -> ScheduleColumn:
        return ScheduleColumn(job, schedule, self._capacity.usage(self._menus[job], schedule))

    def _helps(self, columns: Sequence[ScheduleColumn], raw: DualValues) -> bool:
        """Whether a column has a negative reduced cost at the master's own prices."""
        for column in columns:
            schedule, work = column.schedule, raw.work[column.job]
            usage = column.usage
            paid = schedule.total_score - float(work @ schedule.work)
            if len(usage):
                limit, slot = usage[:, 0].astype(int), usage[:, 1].astype(int)
                paid += float((raw.shared[limit, slot] * usage[:, 2]).sum())
            for price, budget in zip(raw.budget, self._budgets, strict=True):
                paid += float(price) * budget.spent(column.job, schedule)
            if paid < raw.one[column.job] - 1e-9 * abs(schedule.total_score):
                return True
        return False


def _close(value: float, bound: float, gap: float) -> bool:
    return value - bound <= gap * max(abs(value), 1e-9)
