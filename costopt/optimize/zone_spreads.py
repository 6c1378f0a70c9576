"""The parts of gangs spread over several zones, for all rows of a table in three arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.rates import Array

Parts = tuple[tuple[int, int], ...]
"""A spread: (offer number, nodes) of each zone."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ZoneSpreads:
    """Row i has the parts ``first[i]`` to ``first[i + 1]`` of ``offer`` and ``nodes`` (parts,).

    A row of a single pool has none. ``spreads[i]`` gives a row's parts as a tuple, empty where the
    row is a single pool; ``first`` has shape (rows + 1,).
    """

    first: NDArray[np.int64]
    offer: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Parts]) -> Self:
        """The parts of each row, empty for a row of a single pool."""
        each = tuple(rows)
        parts = [part for row in each for part in row]
        counts = np.array([len(row) for row in each], dtype=np.int64)
        pairs = np.array(parts, dtype=np.int64).reshape(-1, 2)
        return cls(_bounds(counts), pairs[:, 0].copy(), pairs[:, 1].copy())

    @classmethod
    def concatenate(cls, some: Sequence[Self]) -> Self:
        """The rows of all, in this order."""
        return cls(
            _bounds(np.concatenate([one.counts for one in some])),
            np.concatenate([one.offer for one in some]),
            np.concatenate([one.nodes for one in some]),
        )

    def __len__(self) -> int:
        return len(self.first) - 1

    def __getitem__(self, row: int) -> Parts:
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        begin, end = self.first[row % len(self)], self.first[row % len(self) + 1]
        if begin == end:
            return ()
        pairs = zip(self.offer[begin:end].tolist(), self.nodes[begin:end].tolist(), strict=True)
        return tuple(pairs)

    def __iter__(self) -> Iterator[Parts]:
        parts = list(zip(self.offer.tolist(), self.nodes.tolist(), strict=True))
        return (tuple(parts[begin:end]) for begin, end in pairwise(self.first.tolist()))

    @property
    def counts(self) -> NDArray[np.int64]:
        """(rows,): how many parts each row has, 0 for a single pool."""
        return np.diff(self.first)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows that are spreads, ascending."""
        return np.flatnonzero(self.first[1:] > self.first[:-1])

    def take(self, rows: NDArray[np.int64]) -> Self:
        """The parts of these rows, in this order."""
        if not len(self.offer):
            return type(self)(np.zeros(len(rows) + 1, dtype=np.int64), self.offer, self.nodes)
        begin = self.first[rows]
        counts = self.first[rows + 1] - begin
        bounds = _bounds(counts)
        places = np.repeat(begin - bounds[:-1], counts) + np.arange(bounds[-1])
        return type(self)(bounds, self.offer[places], self.nodes[places])

    def primary_offer(self) -> NDArray[np.int64]:
        """The offer of the first part of each spread. Shape (spreads,), as of ``rows``."""
        return self.offer[self.first[self.rows]]

    def total(self, figure: Array) -> Array:
        """The sum over each spread of a figure of its parts: from (…, parts) to (…, spreads).

        The spreads are in the order of ``rows``. Added part by part, so that the same gang always
        has the same float.
        """
        rows = self.rows
        begin = self.first[rows]
        counts = self.first[rows + 1] - begin
        total = np.zeros((*figure.shape[:-1], len(begin)))
        for number in range(int(counts.max(initial=0))):
            longer = np.flatnonzero(counts > number)
            total[..., longer] += figure[..., begin[longer] + number]
        return total

    def most(self, figure: Array) -> Array:
        """The largest of a figure of the parts of each spread. Shape (spreads,), as of ``rows``."""
        begin = self.first[self.rows]
        return np.maximum.reduceat(figure, begin) if len(begin) else np.empty(0)

    def largest(self) -> NDArray[np.int64]:
        """The nodes of the largest part of each spread. Shape (spreads,), as of ``rows``."""
        begin = self.first[self.rows]
        return np.maximum.reduceat(self.nodes, begin) if len(begin) else self.nodes

    def every(self, holds: Mask) -> Mask:
        """Whether all parts of each spread hold. Shape (spreads,), as of ``rows``."""
        begin = self.first[self.rows]
        return np.logical_and.reduceat(holds, begin) if len(begin) else holds[:0]


def _bounds(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
