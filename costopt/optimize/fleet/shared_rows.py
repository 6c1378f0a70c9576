"""The master program's rows of shared limits: which there are, and what columns put on them.

A row holds a limit on average over neighbouring slots. Coarse ones come first; a finer one is added
where a solution breaks it, the worst first and a few at a time: prices then settle with each, and
are not thrown over by hundreds at once.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from costopt.optimize.fleet.capacity import Capacity
from costopt.optimize.rates import Array

Span = tuple[int, int, int]
"""(limit, first slot, the slot after the last)."""

VIOLATED = 1e-4
"""The share of a limit by which a solution may break it before it gets a row."""


class SharedRows:
    """``rows`` are numbers in the program, by span."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self.rows: dict[Span, int] = {}
        self._of_limit: dict[int, list[Span]] = defaultdict(list)
        self._usage: list[Array] = []
        self._number: list[int] = []

    def note(self, column: int, usage: Array) -> dict[int, float]:
        """Take note of a new column; its coefficients on the present rows."""
        self._usage.append(usage)
        self._number.append(column)
        terms: dict[int, float] = defaultdict(float)
        for limit, slot, load in usage.tolist():
            for span in self._of_limit.get(int(limit), ()):
                if span[1] <= slot < span[2]:
                    terms[self.rows[span]] += load / self.most(span)
        return dict(terms)

    def add(self, span: Span, row: int) -> None:
        """A span has this row of the program from now on."""
        self.rows[span] = row
        self._of_limit[span[0]].append(span)

    def terms(self, span: Span) -> dict[int, float]:
        """The coefficients of all columns noted so far on a new row."""
        limit, begin, end = span
        most = self.most(span)
        terms: dict[int, float] = {}
        for column, usage in zip(self._number, self._usage, strict=True):
            if len(usage):
                slot = usage[:, 1]
                held = usage[(usage[:, 0] == limit) & (slot >= begin) & (slot < end), 2].sum()
                if held:
                    terms[column] = float(held) / most
        return terms

    def most(self, span: Span) -> float:
        """What the slots of a span allow together."""
        limit, begin, end = span
        count = int(self._capacity.active[limit, begin:end].sum())
        return max(float(self._capacity.most[limit]) * count, 1e-9)

    def broken(self, shares: Array, width: int, at_most: int) -> list[Span]:
        """The worst broken spans of ``width`` slots that have no row yet."""
        used = np.zeros(self._capacity.active.shape)
        for column, usage in zip(self._number, self._usage, strict=True):
            if shares[column] > 1e-9 and len(usage):
                place = (usage[:, 0].astype(int), usage[:, 1].astype(int))
                np.add.at(used, place, usage[:, 2] * shares[column])
        starts = np.arange(0, used.shape[1], width)
        active = np.add.reduceat(self._capacity.active.astype(float), starts, axis=1)
        allowed = self._capacity.most[:, None] * active
        excess = (
            np.add.reduceat(np.where(self._capacity.active, used, 0.0), starts, axis=1) - allowed
        )
        over = excess > VIOLATED * allowed + 1e-9
        worst = sorted(
            ((-excess[n, b] / max(float(allowed[n, b]), 1e-9), n, b) for n, b in np.argwhere(over)),
        )
        spans = [
            (int(n), int(starts[b]), min(int(starts[b]) + width, used.shape[1]))
            for _, n, b in worst
        ]
        return [span for span in spans if span not in self.rows][:at_most]
