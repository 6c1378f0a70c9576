"""Where gangs are: a part of one node, or whole nodes and at most one part.

A gang goes to the node with the least room that holds it. One that shrinks keeps some of its GPUs,
one that starts may make others move, as long as they are small and not protected; one that finds no
room to grow stays as it is. ``place_round`` turns the sizes of a round into gangs on nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from costopt.optimize.rounds.gangs import Ints
from costopt.optimize.rounds.jobs import RoundJobs

Slices = dict[int, int]
"""GPUs by node."""
MAX_TRIED_NODES = 4
NO_ROOM = 1 << 40


class Placement:
    """The GPUs of each job on each node; no GPU is ever used twice."""

    def __init__(self, node_gpus: Sequence[int]) -> None:
        self._size = np.array(node_gpus, dtype=np.int64)
        self._free = self._size.copy()
        self._least = int(self._size.min(initial=NO_ROOM))
        self._slices: dict[int, Slices] = {}
        self._on_node: list[set[int]] = [set() for _ in node_gpus]
        self._others = np.zeros_like(self._size)

    def slices(self, job: int) -> Mapping[int, int]:
        """Return the GPUs of a job by node; none where it waits."""
        return self._slices.get(job, {})

    @property
    def free_gpus(self) -> Sequence[int]:
        """The GPUs of each node that no job has."""
        return tuple(int(gpus) for gpus in self._free)

    def reserve(self, node: int, gpus: int) -> bool:
        """Keep so many GPUs of a node for others; False where gangs have them."""
        more = gpus - self._others[node]
        if more > self._free[node]:
            return False
        self._others[node] += more
        self._free[node] -= more
        return True

    def restore(self, job: int, slices: Mapping[int, int]) -> bool:
        """Give a job exactly these GPUs, which it had before; False where one of them is taken."""
        if any(self._free[node] < gpus for node, gpus in slices.items()):
            return False
        self._set(job, dict(slices))
        return True

    def change(
        self,
        sizes: Iterable[tuple[int, int]],
        fixed: frozenset[int],
        first: frozenset[int] = frozenset(),
    ) -> tuple[set[int], set[int]]:
        """Give jobs their GPUs, 0 for none; jobs in ``fixed`` are not moved.

        Room is made for those that start, and for those in ``first`` where they grow. Return the
        jobs that got another number than asked, since there was no room for it, and the jobs that
        were moved to make room: for those in ``first`` in two steps where need be.
        """
        refused: set[int] = set()
        moved: set[int] = set()
        growing: list[tuple[int, int]] = []
        for job, gpus in sizes:
            if gpus < sum(self.slices(job).values()):
                self._shrink(job, gpus)
            else:
                growing.append((job, gpus))
        for job, gpus in sorted(growing, key=lambda each: (each[0] in self._slices, -each[1])):
            if not self._place(job, gpus) and not (
                (job not in self._slices or job in first)
                and self._make_room(gpus, fixed | {job}, moved, is_deep=job in first)
                and self._place(job, gpus)
            ):
                refused.add(job)
        return refused, moved

    def _shrink(self, job: int, gpus: int) -> None:
        """Keep the fullest slices of a gang."""
        keep: Slices = {}
        for node, held in sorted(self._slices[job].items(), key=lambda each: -each[1]):
            keep[node] = min(held, gpus)
            gpus -= keep[node]
        self._set(job, keep)

    def _place(self, job: int, gpus: int) -> bool:
        """Put a job on the nodes that fit best, in place of those it has; False without room."""
        before = dict(self.slices(job))
        self._set(job, {})
        found = self._fitting(gpus, prefer=before)
        self._set(job, before if found is None else found)
        return found is not None

    def _fitting(
        self, gpus: int, prefer: Mapping[int, int], without: Sequence[int] = ()
    ) -> Slices | None:
        """The nodes for a gang: whole ones, and for the rest the one with the least room for it."""
        room = self._free.copy()
        room[list(without)] = 0
        taken: Slices = {}
        whole = np.flatnonzero(room == self._size) if gpus >= self._least else ()
        for node in sorted(whole, key=lambda node: -self._size[node]):
            if gpus < self._size[node]:
                continue
            taken[int(node)] = int(self._size[node])
            room[node] = 0
            gpus -= int(self._size[node])
        if gpus == 0:
            return taken
        same = [node for node in prefer if room[node] >= gpus]
        best = int(same[0]) if same else int(np.where(room < gpus, NO_ROOM, room).argmin())
        return {**taken, best: gpus} if room[best] >= gpus else None

    def _make_room(
        self, gpus: int, fixed: frozenset[int], moved: set[int], *, is_deep: bool
    ) -> bool:
        """Empty nodes for a gang by moving small jobs off them; False where that fails."""
        largest = int(self._size.max())
        need = min(gpus, largest)
        missing = gpus // largest - int((self._free == largest).sum()) if gpus > largest else 1
        for _ in range(missing):
            back = self._vacate(need, fixed, (), is_deep=is_deep)
            if back is None:
                return False
            moved.update(job for job, _ in back)
        return True

    def _vacate(
        self, need: int, fixed: frozenset[int], without: tuple[int, ...], *, is_deep: bool
    ) -> list[tuple[int, Slices]] | None:
        """Move jobs off one node until it has room; where that fails all of them stay.

        Return where they were before. ``is_deep``: others make room for those that find none.
        """
        short = np.flatnonzero((self._free < need) & (self._free > 0) & (self._size >= need))
        short = short[np.argsort(-self._free[short], kind="stable")]
        for node in [int(each) for each in short if each not in without][:MAX_TRIED_NODES]:
            movable = sorted(
                (slices[node], job)
                for job in self._on_node[node]
                if job not in fixed and len(slices := self._slices[job]) == 1
            )
            back: list[tuple[int, Slices]] = []
            spared = (*without, node)
            for held, job in movable:
                if self._free[node] >= need or held == self._size[node]:
                    break
                found = self._fitting(held, {}, spared)
                if found is None and is_deep:
                    back += self._vacate(held, fixed, spared, is_deep=False) or ()
                    found = self._fitting(held, {}, spared)
                if found is None:
                    break
                back.append((job, self._slices[job]))
                self._set(job, found)
            if self._free[node] >= need:
                return back
            for job, slices in reversed(back):
                self._set(job, slices)
        return None

    def _set(self, job: int, slices: Slices) -> None:
        for node, gpus in self._slices.pop(job, {}).items():
            self._free[node] += gpus
            self._on_node[node].discard(job)
        held = {node: gpus for node, gpus in slices.items() if gpus > 0}
        for node, gpus in held.items():
            self._free[node] -= gpus
            self._on_node[node].add(job)
        if held:
            self._slices[job] = held


def place_round(
    placement: Placement, ids: Ints, jobs: RoundJobs, sizes: Ints, protected_s: float
) -> dict[int, int]:
    """Place the gangs that change. Return the GPUs of each job that restarts or stops, by its id.

    The placement knows the job of each row by its id in ``ids``. Gangs younger than ``protected_s``
    are not moved to make room, unless for a job that is behind; others are, also for a gang that
    grows towards what its job asked for. A job that finds no room keeps what it has, or starts on
    the largest of its smaller gangs that does.
    """
    held, gangs = jobs.held, jobs.gangs
    chosen = np.flatnonzero(sizes != held)
    if not len(chosen):
        return {}
    fixed = frozenset(ids[(jobs.held_s < protected_s) & (held > 0)].tolist())
    first = frozenset(ids[jobs.is_behind].tolist())
    row_of = {int(ids[row]): int(row) for row in chosen}
    wanted = {job: int(sizes[row]) for job, row in row_of.items()}
    asked, _ = gangs.pick(gangs.asked)
    short = frozenset(ids[held < asked].tolist())
    refused, moved = placement.change(wanted.items(), fixed, first | short)
    for job in sorted(refused):
        if job in first:
            unplaced, also = placement.change([(job, wanted[job])], first, first)
            moved |= also
            if not unplaced:
                continue
        del wanted[job]
        row = row_of[job]
        if held[row]:
            continue
        for gpus in reversed([int(each) for each in gangs.gpus[row, : gangs.asked[row]]]):
            unplaced, also = placement.change([(job, gpus)], fixed)
            moved |= also
            if not unplaced:
                wanted[job] = gpus
                break
    also_moved = np.flatnonzero(np.isin(ids, list(moved - wanted.keys()))) if moved else ()
    return wanted | {int(ids[row]): int(held[row]) for row in also_moved}
