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
    """The parts of each row: row i has parts ``first[i]`` to ``first[i + 1]``, the end excluded.

    ``offer`` and ``nodes`` have shape (parts,) and hold each part's offer number and nodes;
    ``first`` has shape (rows + 1,). A row of a single pool has no parts. ``spreads[i]`` gives a
    row's parts as a tuple of (offer, nodes), empty where the row is a single pool.
    """

    first: NDArray[np.int64]
    offer: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Parts]) -> Self:
        """Return the spreads of rows given as tuples of parts, empty for a row of a single pool."""
        each = tuple(rows)
        parts = [part for row in each for part in row]
        counts = np.array([len(row) for row in each], dtype=np.int64)
        pairs = np.array(parts, dtype=np.int64).reshape(-1, 2)
        return cls(_bounds(counts), pairs[:, 0].copy(), pairs[:, 1].copy())

    @classmethod
    def concatenate(cls, some: Sequence[Self]) -> Self:
        """Return the rows of all the given spreads, one after the other in this order."""
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
        """Return the number of parts of each row, shape (rows,); 0 for a single pool."""
        return np.diff(self.first)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the numbers of the rows that are spreads, ascending, shape (spreads,)."""
        return np.flatnonzero(self.first[1:] > self.first[:-1])

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return the spreads of the rows with these numbers, in this order."""
        if not len(self.offer):
            return type(self)(np.zeros(len(rows) + 1, dtype=np.int64), self.offer, self.nodes)
        begin = self.first[rows]
        counts = self.first[rows + 1] - begin
        bounds = _bounds(counts)
        places = np.repeat(begin - bounds[:-1], counts) + np.arange(bounds[-1])
        return type(self)(bounds, self.offer[places], self.nodes[places])

    def primary_offer(self) -> NDArray[np.int64]:
        """Return the offer number of each spread's first part, shape (spreads,), as of ``rows``."""
        return self.offer[self.first[self.rows]]

    def total(self, figure: Array) -> Array:
        """Return the sum of a figure over the parts of each spread, shape (…, spreads).

        ``figure`` has shape (…, parts); the spreads are ordered as ``rows``. Parts are added one by
        one, so that the same gang always has the same float.
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
        """Return the largest of a figure over the parts of each spread, shape (spreads,).

        ``figure`` has shape (parts,); the spreads are ordered as ``rows``.
        """
        begin = self.first[self.rows]
        return np.maximum.reduceat(figure, begin) if len(begin) else np.empty(0)

    def largest(self) -> NDArray[np.int64]:
        """Return the nodes of each spread's largest part, shape (spreads,), ordered as ``rows``."""
        begin = self.first[self.rows]
        return np.maximum.reduceat(self.nodes, begin) if len(begin) else self.nodes

    def every(self, holds: Mask) -> Mask:
        """Return whether ``holds`` is true of all parts of each spread, shape (spreads,).

        ``holds`` has shape (parts,); the spreads are ordered as ``rows``.
        """
        begin = self.first[self.rows]
        return np.logical_and.reduceat(holds, begin) if len(begin) else holds[:0]


def _bounds(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
