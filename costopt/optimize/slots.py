"""The time slots of the model: as few as the changes of the request allow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from costopt.optimize.demand import Demand

BELIEF_H = 1.0
"""For how long the present ``nodes_available`` of an offer is believed; then it counts as unknown.

A choice, not a measurement: recorded spot capacity holds its state for hours, but a plan is made
anew long before a farther guess would matter.
"""

NEAR_H = 2.0
"""Where jobs compete, slots up to here are half as long as the later ones."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Hours [start_h, end_h) from now; ``near`` where present availability is believed."""

    start_h: float
    end_h: float
    near: bool

    @property
    def hours(self) -> float:
        """Its length."""
        return self.end_h - self.start_h

    def within(self, demand: Demand) -> bool:
        """Whether the job may use the slot: from its release to its deadline less the reserve."""
        return self.start_h >= demand.release_h - 1e-9 and self.end_h <= demand.due_h + 1e-9


def slots_of(
    demands: Sequence[Demand], *, scarce_now: bool, slot_h: float | None = None
) -> tuple[Slot, ...]:
    """Slots between every release and deadline, cut where present availability stops counting.

    Prices do not change over the horizon, so one job needs no finer ones; ``slot_h`` cuts further
    where jobs compete.
    """
    times = {t for d in demands if d.hours_left > 0 for t in (d.release_h, d.due_h)}
    if not times:
        return ()
    first, last = min(times), max(times)
    if scarce_now and first < BELIEF_H < last:
        times.add(BELIEF_H)
    if slot_h is not None:
        times.update(_cuts(first, last, slot_h))
    edges = _distinct(times)
    return tuple(
        Slot(start, end, scarce_now and end <= BELIEF_H + 1e-9) for start, end in pairwise(edges)
    )


def _cuts(first: float, last: float, slot_h: float) -> Iterable[float]:
    at = first
    while at < last:
        yield at
        at += slot_h / 2 if at < first + NEAR_H else slot_h


def _distinct(times: Iterable[float]) -> list[float]:
    """Ascending, without edges closer than a second, which no start-up could use."""
    edges: list[float] = []
    for time in sorted(times):
        if math.isfinite(time) and (not edges or time - edges[-1] > 1 / 3600):
            edges.append(time)
    return edges
