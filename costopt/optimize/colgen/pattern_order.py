"""The order of patterns, and when each begins: start-ups counted, and to the second.

The program of patterns (``slot_patterns``) counts a job's first start only and says nothing of
order. Here a stretch is a run of slots that are alike, and a sequence is which patterns each
stretch runs, one after the other. In a sequence all starts are known, so that a linear program
gives the hours of each pattern. Sequences are improved by patterns that come in, go, or change
places.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

import numpy as np

from costopt.optimize.colgen.slot_patterns import Rows, SlotPatterns
from costopt.optimize.rates import Array
from costopt.optimize.solver import IncrementalProgram

ORDERS, NOISE = 40, 1.5
"""Sequences to begin with; up to how many starts more a pattern may take and still come next."""

MAX_SUM = 6_000
"""Patterns of all sequences that are looked at: each takes some 0.1 ms."""

MARGIN = 1e-4
"""The share of the work planned on top: slots begin no closer to each other than a second."""

MIN_H = 1e-6
IDLE = -1
"""No pattern: nothing runs. It is the last column here."""

SEED = 20260302

Sequence = tuple[tuple[int, int], ...]
"""(stretch, number of the pattern or IDLE), in the order of time."""

Blocks = list[tuple[float, Rows]]
"""Hours from now, and places in the jobs' menus that run from then to the next block, −1: none."""


class PatternOrder:
    """Sequences of the patterns that were found; ``stop_at`` is of ``time.perf_counter``."""

    def __init__(self, patterns: SlotPatterns, stop_at: float) -> None:
        self._patterns, self._stop_at = patterns, stop_at
        begins = np.flatnonzero(np.diff(patterns.kind, prepend=-1))
        self._begin_h = patterns.begin_h[begins].tolist()
        self._length_h = np.add.reduceat(patterns.slot_h[:, 0], begins).tolist()
        self._kind = patterns.kind[begins].tolist()
        self._of_kind: dict[int, list[int]] = {kind: [IDLE] for kind in self._kind}
        for number, (kind, _, _) in enumerate(patterns.columns):
            self._of_kind[kind].append(number)
        self._live = np.array([menu.live for menu in patterns.menus])
        none = np.full_like(self._live, -1)
        self._columns = [*patterns.columns, (0, none, none)]
        self._known: dict[Sequence, tuple[float, Array]] = {}
        self._sum = 0

    def best(self) -> Blocks:
        """Return the blocks of the cheapest sequence that was found; it may leave work undone."""
        order = random.Random(SEED)  # noqa: S311
        firsts = [self._first(order, NOISE if turn else 0.0) for turn in range(ORDERS)]
        best = min((self._without_empty(first) for first in firsts), key=self._cost)
        improved = True
        while improved:
            improved = False
            for other in self._neighbours(best, order):
                if self._sum >= MAX_SUM or time.perf_counter() > self._stop_at:
                    break
                if self._cost(other) < self._cost(best) * (1 - 1e-6):
                    best, improved = self._without_empty(other), True
                    break
        return self._blocks(best)

    def _first(self, order: random.Random, noise: float) -> Sequence:
        """The patterns of the program, of which those that start little come next."""
        left, last, found = self._patterns.hours.tolist(), self._live, list[tuple[int, int]]()
        for stretch, kind in enumerate(self._kind):
            room_h = self._length_h[stretch]
            waiting = [number for number in self._of_kind[kind][1:] if left[number] > MIN_H]
            while waiting and room_h > MIN_H:
                starts = [
                    len(self._started(last, number)) + noise * order.random() for number in waiting
                ]
                number = waiting.pop(int(np.argmin(starts)))
                taken_h = min(left[number], room_h)
                left[number] -= taken_h
                room_h, last = room_h - taken_h, self._columns[number][2]
                found.append((stretch, number))
            if room_h > MIN_H:
                found.append((stretch, IDLE))
                last = self._columns[IDLE][2]
        return tuple(found)

    def _started(self, last: Rows, number: int) -> list[int]:
        """The jobs that a pattern starts after these gangs."""
        gangs = self._columns[number][2]
        started: list[int] = np.flatnonzero((gangs != last) & (gangs >= 0)).tolist()
        return started

    def _neighbours(self, sequence: Sequence, order: random.Random) -> Iterator[Sequence]:
        """With one pattern less or more, or two of a stretch the other way round."""
        moves = list[tuple[int, int, Sequence]]()
        stretches = [stretch for stretch, _ in sequence]
        for at, stretch in enumerate(stretches):
            if stretches.count(stretch) > 1:
                moves.append((at, at + 1, ()))
            if stretch in stretches[at + 1 : at + 2]:
                moves.append((at, at + 2, (sequence[at + 1], sequence[at])))
            for number in self._of_kind[self._kind[stretch]]:
                moves += [(cut, cut, ((stretch, number),)) for cut in (at, at + 1)]
        order.shuffle(moves)
        for begin, end, instead in moves:
            yield sequence[:begin] + instead + sequence[end:]

    def _without_empty(self, sequence: Sequence) -> Sequence:
        """Without the patterns that get no time, unless that costs more."""
        hours = self._solved(sequence)[1].tolist()
        fewer = tuple(one for one, h in zip(sequence, hours, strict=True) if h > MIN_H)
        if len(fewer) == len(sequence) or self._cost(fewer) > self._cost(sequence):
            return sequence
        return self._without_empty(fewer)

    def _cost(self, sequence: Sequence) -> float:
        return self._solved(sequence)[0]

    def _solved(self, sequence: Sequence) -> tuple[float, Array]:
        if sequence not in self._known:
            self._sum += len(sequence)
            self._known[sequence] = self._solve(sequence)
        return self._known[sequence]

    def _solve(self, sequence: Sequence) -> tuple[float, Array]:
        """The cost, and the hours of each pattern."""
        patterns, count = self._patterns, len(self._length_h)
        need, start_usd, last = np.full(len(self._live), 1 + MARGIN), 0.0, self._live
        costs, terms = list[float](), list[dict[int, float]]()
        for stretch, number in sequence:
            kind, rows, gangs = self._columns[number]
            jobs = np.flatnonzero(rows >= 0).tolist()
            pay = {job: float(patterns.pay[job][kind, rows[job]]) for job in jobs}
            share = {job: float(patterns.share[job][kind, rows[job]]) for job in jobs}
            for job in self._started(last, number):
                menu, gang = patterns.menus[job], gangs[job]
                start_h = float(menu.start_h[gang])
                need[job] += share[job] * start_h
                start_usd += menu.start_score[patterns.lead[kind], gang] - pay[job] * start_h
            costs.append(sum(pay.values()))
            terms.append({stretch: 1.0, count + stretch: 1.0})
            terms[-1] |= {2 * count + job: each for job, each in share.items()}
            last = gangs
        program = IncrementalProgram(patterns.solver)
        for length_h in self._length_h:
            program.row(high=length_h, terms={})
        for low in [*self._length_h, *need.tolist()]:
            program.row(low=low, terms={})
        program.columns(
            patterns.penalty.tolist(), [{2 * count + job: 1.0} for job in range(len(need))]
        )
        program.columns(costs, terms)
        found = program.solve(time_limit_s=max(0.05, self._stop_at - time.perf_counter()))
        if found is None:
            return math.inf, np.ones(len(sequence))
        return found.objective + float(start_usd), found.values[len(need) :]

    def _blocks(self, sequence: Sequence) -> Blocks:
        blocks, at_h = Blocks(), list(self._begin_h)
        for (stretch, number), hours in zip(sequence, self._solved(sequence)[1], strict=True):
            blocks.append((at_h[stretch], self._columns[number][1]))
            at_h[stretch] += float(hours)
        return blocks
