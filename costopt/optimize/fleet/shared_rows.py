"""The master program's rows of shared limits: which there are, and what columns put on them.

A row holds a limit on average over neighbouring slots. Coarse ones come first; a finer one is added
where a solution breaks it, the worst first and a few at a time: prices then settle with each, and
are not thrown over by hundreds at once.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.fleet.capacity import SharedCapacity
from costopt.optimize.rates import Array

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
        """Take note of a new column; its coefficients on the present rows."""
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
        """A span has this row of the program from now on."""
        self.rows[span] = row
        self._of_limit[span[0]].append(span)

    def terms(self, span: Span) -> dict[int, float]:
        """The coefficients of all columns noted so far on a new row."""
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
        """What the slots of a span allow together."""
        limit, begin, end = span
        count = int(self._capacity.active[limit, begin:end].sum())
        return max(float(self._capacity.most[limit]) * count, 1e-9)

    def broken(self, shares: Array, width: int, at_most: int) -> list[Span]:
        """The worst broken spans of ``width`` slots that have no row yet."""
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
            ((-excess[n, b] / max(float(allowed[n, b]), 1e-9), n, b) for n, b in np.argwhere(over)),
        )
        spans = [
            (int(n), int(starts[b]), min(int(starts[b]) + width, used.shape[1]))
            for _, n, b in worst
        ]
        return [span for span in spans if span not in self.rows][:at_most]
