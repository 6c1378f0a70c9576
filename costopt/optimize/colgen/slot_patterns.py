"""Plans of a few jobs from patterns: what all of them run side by side in a slot.

Schedules of one job after the other leave gaps that no other job fits. A pattern is a row of each
job's menu, or none, that together keep the limits that jobs share. A linear program chooses for how
many hours each pattern runs in slots that are alike; at prices of work the best pattern of a slot
is a knapsack over the loads of the limits, solved exactly. Start-ups are left out, and so are
limits on dollars, on kW and on what pools have at present: the bound holds all the same, and
whether schedules keep those limits is checked when they are packed.

Schedules are rounded from the solution many times, with the patterns in other orders and with more
work for the jobs that come short by start-ups and the ends of slots.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.colgen.capacity import TOLERANCE, SharedCapacity
from costopt.optimize.colgen.menu import JobMenu
from costopt.optimize.colgen.pricing import PricingSolution
from costopt.optimize.colgen.schedule import JobSchedule, schedule_of, trim_excess_work
from costopt.optimize.rates import Array
from costopt.optimize.solver import IncrementalProgram

MAX_STATES = 60_000
"""Kinds of slots × loads of the limits up to which the knapsacks take less than a second."""

ROUNDS, CLOSE = 60, 1e-4
"""Rounds of prices at the most, and the gap at which they have settled."""

TRIALS, NOISE, EASE = 40, 1.5, 0.3
"""Roundings; up to how many starts more a pattern may take and still come next; the share of excess
work that is asked for no longer once every job is served.
"""

UNSERVED_PENALTY = 100.0
"""What a job's work left undone costs in the linear program, over its first price: with 5, jobs
that could just be served at ten times the price were not.
"""

SEED = 20260302

Rows = NDArray[np.int64]


class SlotPatterns:
    """The patterns of jobs with these menus; ``usable`` where they have one stage, which may pause.

    Limits must be few and in whole numbers. There are C kinds of slots and J jobs; ``prices`` (J,)
    are of each job's whole work, in dollars.
    """

    def __init__(self, capacity: SharedCapacity, menus: Sequence[JobMenu]) -> None:
        empty = capacity.empty()
        self._menus = [menu.narrowed(capacity.allowed(menu, empty)) for menu in menus]
        self._slot_h = np.array([slot.hours for slot in capacity.slots])[:, None]
        pay = [np.where(m.usable, m.pay / self._slot_h, np.inf) for m in self._menus]
        kinds: dict[bytes, int] = {}
        alike = [row.tobytes() for row in np.round(np.hstack(pay), 9)]
        self._kind = np.array([kinds.setdefault(row, len(kinds)) for row in alike])
        self._lead = np.unique(self._kind, return_index=True)[1]
        self._hours = np.bincount(self._kind, self._slot_h[:, 0])
        self._pay = [each[self._lead] for each in pay]
        self._share = [
            (m.hours[:, None] / self._slot_h)[self._lead] * m.units[0] / m.work[0] for m in menus
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
        states = len(self._lead) * math.prod(self._sizes.tolist())
        self.usable = simple and len(tight) > 0 and states <= MAX_STATES
        self._loads = [np.rint(each[tight].T / unit).astype(np.int64) for each in loads]
        self._columns: list[tuple[int, Rows, Rows]] = []

    def bound(self, prices: Array) -> float:
        """Return the bound that these prices prove for plans of rows on the menus."""
        return float(prices.sum() - self._best(prices)[0] @ self._hours)

    def solve(self, prices: Array, stop_at: float, solver: str | None = None) -> Array:
        """Find patterns from the given prices on until they settle; return the best prices.

        ``stop_at`` is a time of the clock ``time.perf_counter``.
        """
        self._unit, self._program = float(prices.sum()), IncrementalProgram(solver)
        for hours in self._hours.tolist():
            self._program.row(high=hours, terms={})
        self._jobs = [self._program.row(low=1.0, terms={}) for _ in prices]
        costs = (UNSERVED_PENALTY * prices / self._unit).tolist()
        self._program.columns(costs, [{row: 1.0} for row in self._jobs])
        best, center = -math.inf, prices
        for turn in range(ROUNDS):
            value, rows = self._best(prices)
            bound = float(prices.sum() - value @ self._hours)
            if bound > best:
                best, center = bound, prices
            self._add(rows)
            found = self._program.solve(time_limit_s=max(0.05, stop_at - time.perf_counter()))
            if found is None or time.perf_counter() > stop_at:
                break
            if found.objective * self._unit - best <= CLOSE * abs(best):
                break
            raw = found.duals[self._jobs] * self._unit
            prices = raw if turn % 2 else (center + raw) / 2
        return center

    def schedules(self, stop_at: float) -> list[JobSchedule]:
        """Return schedules that fit together: of those that serve most of all work the cheapest."""
        need, order = np.ones(len(self._menus)), random.Random(SEED)  # noqa: S311
        best, least = list[JobSchedule](), (math.inf, math.inf)
        for turn in range(TRIALS):
            found = self._program.solve(time_limit_s=max(0.05, stop_at - time.perf_counter()))
            if found is None or (best and time.perf_counter() > stop_at):
                break
            rows = self._arranged(found.values[len(need) :], order, NOISE if turn else 0.0)
            whole = [self._schedule(job, rows[:, job]) for job in range(len(need))]
            short = 1 - np.array(
                [one.work[0] / m.work[0] for one, m in zip(whole, self._menus, strict=True)]
            )
            made = [trim_excess_work(m, one) for m, one in zip(self._menus, whole, strict=True)]
            figure = (float(short[short > 1e-9].sum()), sum(one.total_score for one in made))
            best, least = (made, figure) if figure < least else (best, least)
            spare = EASE * short if figure[0] == 0 else 0.0
            need = np.maximum(1.0, need + np.where(short > 1e-9, 1.05 * short + 1e-5, spare))
            for row, low in zip(self._jobs, need.tolist(), strict=True):
                self._program.set_low(row, low)
        return best

    def _best(self, prices: Array) -> tuple[Array, Rows]:
        """By kind of slot, the value of an hour of the best pattern, and its rows (C, J)."""
        kinds, ones = np.arange(len(self._lead)), (1,) * len(self._sizes)
        value, taken = np.zeros((len(kinds), *self._sizes)), list[Rows]()
        for price, share, pay, loads in zip(
            prices.tolist(), self._share, self._pay, self._loads, strict=True
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
        known = {(kind, *rows.tolist()) for kind, rows, _ in self._columns}
        costs, terms = list[float](), list[dict[int, float]]()
        for kind, rows in enumerate(patterns):
            jobs = np.flatnonzero(rows >= 0).tolist()
            if not jobs or (kind, *rows.tolist()) in known:
                continue
            gangs = [m.gang[r] if r >= 0 else -1 for m, r in zip(self._menus, rows, strict=True)]
            self._columns.append((kind, rows, np.array(gangs)))
            costs.append(sum(float(self._pay[j][kind, rows[j]]) for j in jobs) / self._unit)
            shares = {self._jobs[j]: float(self._share[j][kind, rows[j]]) for j in jobs}
            terms.append({kind: 1.0} | shares)
        self._program.columns(costs, terms)

    def _arranged(self, hours: Array, order: random.Random, noise: float) -> Rows:
        """(T, J): the rows by slot; patterns that start little come next, and fill whole slots."""
        rows = np.full((len(self._kind), len(self._menus)), -1)
        last = np.full(len(self._menus), -1)
        for kind in range(len(self._lead)):
            waiting = [n for n in np.flatnonzero(hours > 1e-6) if self._columns[n][0] == kind]
            slots, end = np.flatnonzero(self._kind == kind), 0.0
            slot_h = self._slot_h[slots, 0]
            middle = np.cumsum(slot_h) - slot_h * (order.uniform(0.1, 0.9) if noise else 0.5)
            while waiting:
                starts = [
                    int(((self._columns[n][2] != last) & (self._columns[n][2] >= 0)).sum())
                    + noise * order.random()
                    for n in waiting
                ]
                number = waiting.pop(int(np.argmin(starts)))
                begin, end = end, end + float(hours[number])
                rows[slots[(middle >= begin) & (middle < end)]] = self._columns[number][1]
                last = self._columns[number][2]
        return rows

    def _schedule(self, job: int, rows: Rows) -> JobSchedule:
        menu, slots = self._menus[job], np.flatnonzero(rows >= 0)
        places = rows[slots]
        runs_on = (np.diff(slots, prepend=-1) == 1) & (
            np.diff(menu.gang[places], prepend=menu.live) == 0
        )
        steps = np.column_stack((slots, np.zeros_like(slots), places, ~runs_on))
        return schedule_of(menu, PricingSolution(0.0, steps.astype(np.int64)))
