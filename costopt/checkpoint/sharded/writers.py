"""Who writes which box: every rank decides it alone, for all ranks, and all decide the same.

A gang of 512 ranks holds a million boxes, so they are compared as columns of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from costopt.checkpoint.sharded.boxes import HeldBox

Column = np.ndarray[Any, np.dtype[Any]]
MIXER = 0x9E3779B97F4A7C15
"""The odd number whose powers hash a set of ranks: 2⁶⁴ by the golden ratio (Knuth, TAOCP 6.4)."""


def box_keys(held: Iterable[HeldBox]) -> Column:
    """Return what other ranks must know of the boxes: a row of hash and size in bytes for each.

    Were two hashes equal, one box would not be written: a save that is not whole never commits.
    """
    rows = [
        (int.from_bytes(blake2b(repr((*tensor, *box)).encode(), digest_size=8).digest()), size)
        for tensor, box, size in held
    ]
    return np.array(rows, dtype=np.uint64).reshape(-1, 2)


def assign_writers(keys: Sequence[Column]) -> list[Column]:
    """Return which of its boxes each rank writes: every box once, by a holder with little to write.

    The same on each rank. No rank writes empty boxes.
    """
    counts = [len(each) for each in keys]
    ranks = np.repeat(np.arange(len(keys)), counts)
    hashes, sizes = np.concatenate(keys).T
    sizes = sizes.astype(np.int64)
    # Holders of equal boxes become neighbours, in the order of their ranks.
    order = np.argsort(hashes, kind="stable")
    order = order[sizes[order] > 0]
    begins = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
    holders = np.diff(begins, append=len(order))
    writes = np.zeros(len(ranks), dtype=bool)
    alone = order[begins[holders == 1]]
    writes[alone] = True
    load = np.bincount(ranks[alone], sizes[alone], len(keys)).astype(np.int64)
    # Those with few holders come first: the ones that anybody holds even the load out.
    for count in np.flatnonzero(np.bincount(holders[holders > 1])):
        places = order[begins[holders == count][:, None] + np.arange(count)]
        _deal(places, ranks, sizes, load, writes)
    return np.split(writes, np.cumsum(counts)[:-1])


def _deal(places: Column, ranks: Column, sizes: Column, load: Column, writes: Column) -> None:
    """Choose a writer for boxes with as many holders each; a row of ``places`` is one box's."""
    powers = np.cumprod(np.full(places.shape[1], MIXER, dtype=np.uint64))
    _, first, group = np.unique(
        (ranks[places].astype(np.uint64) + np.uint64(1)) @ powers,
        return_index=True,
        return_inverse=True,
    )
    sets = ranks[places[first]]
    order = np.lexsort((-sizes[places[:, 0]], group))
    bounds = np.searchsorted(group[order], np.arange(len(sets) + 1))
    for batch in _disjoint(sets, len(load)):
        begins, ends, members = bounds[batch], bounds[batch + 1], sets[batch]
        # The largest of each set at once, then the next: sets of a batch have no rank in common.
        for number in range(int((ends - begins).max())):
            more = np.flatnonzero(begins + number < ends)
            rows = order[begins[more] + number]
            least = load[members[more]].argmin(axis=1)
            load[members[more, least]] += sizes[places[rows, least]]
            writes[places[rows, least]] = True


def _disjoint(sets: Column, ranks: int) -> list[Column]:
    """Return the numbers of the sets in batches; in each, no rank is in two sets."""
    batches: list[tuple[Column, list[int]]] = []
    for number in np.argsort(sets[:, 0], kind="stable"):
        free = (each for each in batches if not each[0][sets[number]].any())
        used, batch = next(free, (np.zeros(ranks, dtype=bool), []))
        if not batch:
            batches.append((used, batch))
        used[sets[number]] = True
        batch.append(int(number))
    return [np.array(batch) for _, batch in batches]
