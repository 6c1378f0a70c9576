"""Plans of a few jobs from patterns: what all of them run side by side in a slot.

Schedules of one job after the other leave gaps that no other job fits. A pattern is a row of each
job's menu, or none, that together keep the limits that jobs share. A linear program chooses for how
many hours each pattern runs in slots that are alike; at prices of work the best pattern of a slot
is a knapsack over the loads of the limits, solved exactly. Of start-ups the first of each job
counts. Limits on dollars, on kW and on what pools have at present are left out: the bound holds all
the same, and whether schedules keep those limits is checked when they are packed. ``pattern_order``
makes schedules of the patterns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.colgen.capacity import TOLERANCE, SharedCapacity
from costopt.optimize.colgen.menu import JobMenu
from costopt.optimize.colgen.pricing import PricingSolution
from costopt.optimize.colgen.schedule import JobSchedule, schedule_of
from costopt.optimize.rates import Array
from costopt.optimize.solver import IncrementalProgram

MAX_STATES = 60_000
"""Kinds of slots × loads of the limits up to which the knapsacks take less than a second."""

ROUNDS, CLOSE = 60, 1e-4
"""Rounds of prices at the most, and the gap at which they have settled."""

UNSERVED_PENALTY = 100.0
"""What a job's work left undone costs in the linear program, over its first price: with 5, jobs
that could just be served at ten times the price were not.
"""

Rows = NDArray[np.int64]


class SlotPatterns:
    """The patterns of jobs with these menus; ``usable`` where they have one stage, which may pause.

    Limits must be few and in whole numbers. There are C kinds of slots and J jobs; ``prices`` (J,)
    are of each job's whole work, in dollars. Of an hour of a row, ``pay`` and ``share`` (C, rows)
    are the objective and the share of the job's work. ``columns`` are the patterns found, each with
    its kind of slot and the jobs' rows and gangs, ``hours`` those of the linear program.
    """

    def __init__(self, capacity: SharedCapacity, menus: Sequence[JobMenu]) -> None:
        empty = capacity.empty()
        self.menus = [menu.narrowed(capacity.allowed(menu, empty)) for menu in menus]
        self.begin_h = np.array([slot.start_h for slot in capacity.slots])
        self.slot_h = np.array([slot.hours for slot in capacity.slots])[:, None]
        pay = [np.where(m.usable, m.pay / self.slot_h, np.inf) for m in self.menus]
        kinds: dict[bytes, int] = {}
        alike = [row.tobytes() for row in np.round(np.hstack(pay), 9)]
        self.kind = np.array([kinds.setdefault(row, len(kinds)) for row in alike])
        self.lead = np.unique(self.kind, return_index=True)[1]
        self._hours = np.bincount(self.kind, self.slot_h[:, 0])
        self.pay = [each[self.lead] for each in pay]
        self.share = [
            (m.hours[:, None] / self.slot_h)[self.lead] * m.units[0] / m.work[0] for m in menus
        ]
        loads = [capacity.loads(menu) for menu in menus]
        most = sum(each.max(axis=1, initial=0.0) for each in loads)
        tight = np.flatnonzero((most > capacity.most) & capacity.active.all(axis=1))
        held = np.hstack(loads)[tight]
        unit = np.maximum(np.gcd.reduce(np.rint(held).astype(np.int64), axis=1, initial=0), 1)
        room = capacity.most[tight] * (1 + TOLERANCE) // unit
        self._sizes = np.maximum(room, 0).astype(np.int64) + 1
        simple = all(len(menu.work) == 1 and menu.may_pause.all() for menu in menus)
        simple = simple and np.array_equal(held, np.rint(held))
        states = len(self.lead) * math.prod(self._sizes.tolist())
        self.usable = simple and len(tight) > 0 and states <= MAX_STATES
        self._loads = [np.rint(each[tight].T / unit).astype(np.int64) for each in loads]
        starts = np.array([self._first_start(job) for job in range(len(menus))])
        self._need, self._starts_usd = 1 + starts[:, 0], float(starts[:, 1].sum())
        self.columns: list[tuple[int, Rows, Rows]] = []
        self.hours = np.zeros(0)

    def _first_start(self, job: int) -> tuple[float, float]:
        """Return the least share of the work that the first start of a job takes, and the least
        that it costs above its hours of work; 0 where a gang runs now."""
        menu, pay, share = self.menus[job], self.pay[job], self.share[job]
        if menu.live >= 0:
            return 0.0, 0.0
        start_h = menu.start_h[menu.gang]
        can = np.isfinite(pay) & (share > 0)
        usd = menu.start_score[self.lead][:, menu.gang] - np.where(can, pay, 0.0) * start_h
        if not can.any():
            return 0.0, 0.0
        return float((share * start_h)[can].min()), min(0.0, float(usd[can].min()))

    def bound(self, prices: Array) -> float:
        """Return the bound that these prices prove for plans of rows on the menus."""
        return self._bound(prices, self._best(prices)[0])

    def _bound(self, prices: Array, value: Array) -> float:
        return float(prices @ self._need - value @ self._hours) + self._starts_usd

    def solve(self, prices: Array, stop_at: float, solver: str | None = None) -> Array:
        """Find patterns from the given prices on until they settle; return the best prices.

        ``stop_at`` is a time of the clock ``time.perf_counter``.
        """
        self._unit, self._program = float(prices.sum()), IncrementalProgram(solver)
        self.solver, self.penalty = solver, UNSERVED_PENALTY * prices
        for hours in self._hours.tolist():
            self._program.row(high=hours, terms={})
        self._jobs = [self._program.row(low=low, terms={}) for low in self._need.tolist()]
        costs = (self.penalty / self._unit).tolist()
        self._program.columns(costs, [{row: 1.0} for row in self._jobs])
        best, center = -math.inf, prices
        for turn in range(ROUNDS):
            value, rows = self._best(prices)
            bound = self._bound(prices, value)
            if bound > best:
                best, center = bound, prices
            self._add(rows)
            self.hours = np.pad(self.hours, (0, len(self.columns) - len(self.hours)))
            found = self._program.solve(time_limit_s=max(0.05, stop_at - time.perf_counter()))
            if found is None:
                break
            self.hours = found.values[len(prices) :]
            if time.perf_counter() > stop_at:
                break
            if found.objective * self._unit + self._starts_usd - best <= CLOSE * abs(best):
                break
            raw = found.duals[self._jobs] * self._unit
            prices = raw if turn % 2 else (center + raw) / 2
        return center

    def _best(self, prices: Array) -> tuple[Array, Rows]:
        """By kind of slot, the value of an hour of the best pattern, and its rows (C, J)."""
        kinds, ones = np.arange(len(self.lead)), (1,) * len(self._sizes)
        value, taken = np.zeros((len(kinds), *self._sizes)), list[Rows]()
        for price, share, pay, loads in zip(
            prices.tolist(), self.share, self.pay, self._loads, strict=True
        ):
            worth, before = price * share - pay, value.copy()
            chosen = np.full(value.shape, -1)
            every, group = np.unique(loads, axis=0, return_inverse=True)
            for number, load in enumerate(every.tolist()):
                rows = np.flatnonzero(group.reshape(-1) == number)
                row = rows[worth[:, rows].argmax(axis=1)]
                gain = worth[kinds, row]
                if (gain <= 0).all() or (load >= self._sizes).any():
                    continue
                after = (slice(None), *(slice(x, None) for x in load))
                room = tuple(slice(0, n - x) for n, x in zip(self._sizes, load, strict=True))
                more = before[(slice(None), *room)] + gain.reshape(-1, *ones)
                better = more > value[after]
                value[after][better] = more[better]
                at = np.broadcast_to(row.reshape(-1, *ones), more.shape)
                chosen[after][better] = at[better]
            taken.append(chosen)
        full = left = np.tile(self._sizes - 1, (len(kinds), 1))
        rows = np.full((len(kinds), len(taken)), -1)
        for job in reversed(range(len(taken))):
            rows[:, job] = row = taken[job][(kinds, *left.T)]
            left = left - np.where(row[:, None] >= 0, self._loads[job][row], 0)
        return value[(kinds, *full.T)], rows

    def _add(self, patterns: Rows) -> None:
        known = {(kind, *rows.tolist()) for kind, rows, _ in self.columns}
        costs, terms = list[float](), list[dict[int, float]]()
        for kind, rows in enumerate(patterns):
            jobs = np.flatnonzero(rows >= 0).tolist()
            if not jobs or (kind, *rows.tolist()) in known:
                continue
            gangs = [m.gang[r] if r >= 0 else -1 for m, r in zip(self.menus, rows, strict=True)]
            self.columns.append((kind, rows, np.array(gangs)))
            costs.append(sum(float(self.pay[j][kind, rows[j]]) for j in jobs) / self._unit)
            shares = {self._jobs[j]: float(self.share[j][kind, rows[j]]) for j in jobs}
            terms.append({kind: 1.0} | shares)
        self._program.columns(costs, terms)


def schedule_of_rows(menu: JobMenu, slots: Rows, places: Rows) -> JobSchedule:
    """Return the schedule of a job of one stage that runs these rows of its menu in these slots."""
    runs_on = (np.diff(slots, prepend=-1) == 1) & (
        np.diff(menu.gang[places], prepend=menu.live) == 0
    )
    steps = np.column_stack((slots, np.zeros_like(slots), places, ~runs_on))
    return schedule_of(menu, PricingSolution(0.0, steps.astype(np.int64)))
