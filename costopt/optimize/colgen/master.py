"""The restricted master problem: how much of which schedule each job takes, as a linear relaxation.

Columns z are whole schedules s of jobs j; the rows and their prices (dual values):

    min   Σ score_s z_s + Σ unserved_j · z_j
    one       Σ_s of j z_s ≤ 1                                 a job has one schedule
    work      Σ_s units_sq z_s + W_jq z_j ≥ W_jq               price of work, per unit
    shared    Σ_s,t load_slt z_s ≤ Σ_t max_l  in each block   price of the limit, per unit of load
    budget    Σ_s usd_s z_s ≤ most                             price of a dollar (or a kWh)

At any prices ≥ 0 the objective is at least Σ price·W − Σ price·most − Σ_j (value of j's best
schedule at these prices): the Lagrangian bound (Desaulniers et al., Column Generation, 2005).
Every row is in shares of its own limit.

A block is a few neighbouring slots. A limit that holds on average over a block relaxes the slots'
own limits, but the fewer rows, the sooner the prices settle. ``SharedLimitRows`` starts with coarse
blocks and adds finer ones where a solution violates them, the worst first and a few at a time, so
that prices settle after each and are not thrown off by hundreds of rows at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.colgen.capacity import SharedBudget, SharedCapacity
from costopt.optimize.colgen.schedule import JobSchedule
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.solver import IncrementalProgram

UNSERVED_PENALTY = 5.0
"""What a job's work left undone costs in the relaxation, over the cost of its first schedule."""

MAX_ROWS_PER_SOLVE = 20
RESOLVES = 3
"""Rows added before a solve, and solves before new columns are sought."""


@dataclass(frozen=True, slots=True)
class DualValues:
    """Prices, all ≥ 0.

    ``work`` has shape (Q,) per job, by stage, per unit; ``shared`` (L, T), by limit and slot, per
    unit of load; ``budget`` is per budget, per dollar or kWh; ``one`` (J,), by job, is what a
    schedule of the job must cost less than nothing by, to be worth a share.
    """

    work: tuple[Array, ...]
    shared: Array
    budget: Array
    one: Array

    def towards(self, other: DualValues, share: float) -> DualValues:
        """Return the prices ``share`` of the way from these to the other ones."""
        return DualValues(
            tuple(a + share * (b - a) for a, b in zip(self.work, other.work, strict=True)),
            self.shared + share * (other.shared - self.shared),
            self.budget + share * (other.budget - self.budget),
            self.one + share * (other.one - self.one),
        )


@dataclass(frozen=True, slots=True)
class ScheduleColumn:
    """A schedule of a job in the master problem, with what it holds of each limit."""

    job: int
    schedule: JobSchedule
    usage: Array


class MasterProblem:
    """The master problem: it grows by columns, and its solutions are prices and shares."""

    def __init__(
        self,
        parts: Sequence[PlannedJob],
        capacity: SharedCapacity,
        budgets: Sequence[SharedBudget],
        unit_usd: float,
        solver: str | None = None,
    ) -> None:
        self._parts, self._capacity, self._budgets = parts, capacity, budgets
        self._unit_usd = unit_usd
        self._shared = SharedLimitRows(capacity)
        self._program = IncrementalProgram(solver)
        self.columns: list[ScheduleColumn | None] = []
        self._work = [np.array([stage.units for stage in part.demand.stages]) for part in parts]
        self._one = [self._program.row(high=1.0, terms={}) for _ in parts]
        self._work_rows: list[list[int]] = [[] for _ in parts]
        self._budget_rows = [self._program.row(high=1.0, terms={}) for _ in budgets]

    def add_unserved(self, costs: Mapping[int, float]) -> None:
        """Add the columns that leave a job's work undone, at these dollars by job number.

        Jobs that are not in ``costs`` get no such column.
        """
        for job, cost in costs.items():
            self.columns.append(None)
            rows = [self._program.row(low=1.0, terms={}) for _ in self._work[job]]
            self._work_rows[job] = rows
            self._program.columns([cost / self._unit_usd], [dict.fromkeys(rows, 1.0)])

    def add(self, columns: Sequence[ScheduleColumn]) -> None:
        """Add new columns."""
        if not columns:
            return
        self._program.columns(
            [column.schedule.total_score / self._unit_usd for column in columns],
            [self._terms(len(self.columns) + i, column) for i, column in enumerate(columns)],
        )
        self.columns.extend(columns)

    def _terms(self, number: int, column: ScheduleColumn) -> dict[int, float]:
        job, schedule = column.job, column.schedule
        terms = {self._one[job]: 1.0}
        shares = (schedule.work / self._work[job]).tolist()
        terms |= {r: x for r, x in zip(self._work_rows[job], shares, strict=True) if x}
        for row, budget in zip(self._budget_rows, self._budgets, strict=True):
            spent = budget.spent(job, schedule)
            if spent:
                terms[row] = spent / budget.most
        return terms | self._shared.note(number, column.usage)

    def solve(self, width: int, time_limit_s: float) -> tuple[Array, DualValues, float] | None:
        """Return the columns' shares, the prices and the objective; None where time ran out.

        Limits are held over spans of ``width`` slots, or over longer ones where that is enough.
        """
        found = self._program.solve(time_limit_s=time_limit_s)
        for _ in range(RESOLVES):
            if found is None or not self._add_broken(found.values, width):
                break
            found = self._program.solve(time_limit_s=time_limit_s)
        if found is None:
            return None
        return found.values, self._duals(found.duals), found.objective * self._unit_usd

    def breaks_nothing(self, shares: Array, width: int) -> bool:
        """Return whether every limit holds over all spans of this width."""
        return not self._shared.broken(shares, width, 1)

    def _add_broken(self, shares: Array, width: int) -> bool:
        spans = self._shared.broken(shares, width, max(MAX_ROWS_PER_SOLVE, len(self._parts)))
        for span in spans:
            row = self._program.row(high=1.0, terms=self._shared.terms(span))
            self._shared.add(span, row)
        return bool(spans)

    @property
    def build_s(self) -> float:
        """Return the seconds spent on building the program so far."""
        return self._program.build_s

    @property
    def shares_anything(self) -> bool:
        """Return whether any shared limit has been violated so far."""
        return bool(self._shared.rows)

    def _duals(self, duals: Array) -> DualValues:
        unit = self._unit_usd
        shared = np.zeros(self._capacity.active.shape)
        for (limit, begin, end), row in self._shared.rows.items():
            price = max(0.0, -duals[row]) * unit / self._shared.most((limit, begin, end))
            shared[limit, begin:end] += price * self._capacity.active[limit, begin:end]
        return DualValues(
            tuple(
                np.maximum(duals[rows], 0.0) * unit / work if rows else np.zeros(len(work))
                for rows, work in zip(self._work_rows, self._work, strict=True)
            ),
            shared,
            np.array(
                [
                    max(0.0, -duals[row]) * unit / budget.most
                    for row, budget in zip(self._budget_rows, self._budgets, strict=True)
                ]
            ),
            duals[self._one] * unit,
        )


Span = tuple[int, int, int]
"""(limit, first slot, the slot after the last)."""

VIOLATED = 1e-4
"""The share of a limit by which a solution may break it before it gets a row."""


class SharedLimitRows:
    """``rows`` are numbers in the program, by span."""

    def __init__(self, capacity: SharedCapacity) -> None:
        self._capacity = capacity
        self.rows: dict[Span, int] = {}
        self._of_limit: dict[int, list[Span]] = defaultdict(list)
        self._columns: list[NDArray[np.int64]] = []
        self._usage: list[Array] = []

    def note(self, column: int, usage: Array) -> dict[int, float]:
        """Register a new column and return its coefficients on the present rows."""
        self._usage.append(usage)
        self._columns.append(np.full(len(usage), column))
        terms: dict[int, float] = {}
        for limit in np.unique(usage[:, 0]).astype(int).tolist():
            spans = self._of_limit.get(limit)
            if spans:
                own = usage[usage[:, 0] == limit]
                load = np.bincount(own[:, 1].astype(int), own[:, 2], self._slots)
                sums = np.concatenate(([0.0], np.cumsum(load)))
                for span in spans:
                    held = float(sums[span[2]] - sums[span[1]])
                    if held > 0:
                        terms[self.rows[span]] = held / self.most(span)
        return terms

    def add(self, span: Span, row: int) -> None:
        """Assign a row of the program to a span."""
        self.rows[span] = row
        self._of_limit[span[0]].append(span)

    def terms(self, span: Span) -> dict[int, float]:
        """Return the coefficients of all columns registered so far on a new row."""
        limit, begin, end = span
        column, usage = self._noted()
        held = (usage[:, 0] == limit) & (usage[:, 1] >= begin) & (usage[:, 1] < end)
        load = np.bincount(column[held], usage[held, 2])
        some = np.flatnonzero(load)
        return dict(zip(some.tolist(), (load[some] / self.most(span)).tolist(), strict=True))

    @property
    def _slots(self) -> int:
        return int(self._capacity.active.shape[1])

    def _noted(self) -> tuple[NDArray[np.int64], Array]:
        """(entries,) columns and (entries, 3) usage of all that was noted so far."""
        if len(self._usage) > 1:
            self._usage = [np.concatenate(self._usage)]
            self._columns = [np.concatenate(self._columns)]
        if not self._usage:
            return np.empty(0, dtype=np.int64), np.empty((0, 3))
        return self._columns[0], self._usage[0]

    def most(self, span: Span) -> float:
        """Return the limit's total over the slots of a span."""
        limit, begin, end = span
        count = int(self._capacity.active[limit, begin:end].sum())
        return max(float(self._capacity.most[limit]) * count, 1e-9)

    def broken(self, shares: Array, width: int, at_most: int) -> list[Span]:
        """Return the most violated spans of ``width`` slots that have no row yet."""
        column, usage = self._noted()
        held = shares[column] > 1e-9
        place = usage[held, 0].astype(int) * self._slots + usage[held, 1].astype(int)
        load = usage[held, 2] * shares[column[held]]
        shape = self._capacity.active.shape
        used = np.bincount(place, load, shape[0] * shape[1]).reshape(shape)
        starts = np.arange(0, used.shape[1], width)
        active = np.add.reduceat(self._capacity.active.astype(float), starts, axis=1)
        allowed = self._capacity.most[:, None] * active
        excess = (
            np.add.reduceat(np.where(self._capacity.active, used, 0.0), starts, axis=1) - allowed
        )
        over = excess > VIOLATED * allowed + 1e-9
        worst = sorted(
            ((-excess[n, b] / max(float(allowed[n, b]), 1e-9), n, b) for n, b in np.argwhere(over))
        )
        spans = [
            (int(n), int(starts[b]), min(int(starts[b]) + width, used.shape[1]))
            for _, n, b in worst
        ]
        return [span for span in spans if span not in self.rows][:at_most]
