"""The time slots of the model: as few as the request's changes over time allow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np

from costopt.optimize.demand import Demand
from costopt.optimize.rates import Array

AVAILABILITY_HORIZON_H = 1.0
"""For how long the present ``nodes_available`` of an offer is believed; then it counts as unknown.

A choice, not a measurement: recorded spot capacity holds its state for hours, but a plan is made
again long before a farther guess would matter.
"""

NEAR_H = 2.0
FAR_H = 168.0
MAX_DOUBLINGS = 20
"""Slots of plans over time are halved up to the first, and doubled beyond each of the second.

Twenty doublings are a century, so that the distance of a deadline cannot overflow a float.
"""

MAX_CUT_JOBS = 12
"""Jobs up to which slots are cut at every release and deadline too, and patterns of what jobs run
side by side are sought; the times of more lie close.
"""

MERGE_SHARE = 0.3
"""A first slot shorter than this share of the usual one is joined to the next."""

MIN_H = 1 / 3600
"""Less time than this no start-up could use."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The hours [start_h, end_h) from now.

    ``near`` is set where present availability is scarce and still assumed to hold.
    """

    start_h: float
    end_h: float
    near: bool

    @property
    def hours(self) -> float:
        """Return the length of the slot in hours."""
        return self.end_h - self.start_h

    def hours_of(self, demand: Demand) -> float:
        """Return the hours of the slot that the job may use, from its release to its due time.

        The due time is the deadline less the policy's reserve. The result is 0 where what remains
        is too short to be of any use.
        """
        hours = min(self.end_h, demand.due_h) - max(self.start_h, demand.release_h)
        return hours if hours > MIN_H else 0.0


def open_hours(slots: Sequence[Slot], demand: Demand) -> Array:
    """Return ``Slot.hours_of`` the demand for every slot, in hours, shape (slots,)."""
    edges = np.array([(slot.start_h, slot.end_h) for slot in slots]).reshape(-1, 2)
    hours = np.minimum(edges[:, 1], demand.due_h) - np.maximum(edges[:, 0], demand.release_h)
    return np.where(hours > MIN_H, hours, 0.0)


def clock_slots(
    demands: Sequence[Demand],
    now: datetime,
    *,
    scarce_now: bool,
    slot_h: float | None = None,
    cuts_h: Iterable[float] = (),
) -> tuple[Slot, ...]:
    """Return the slots of a plan over time, cut at whole hours of the clock.

    Successive plans therefore agree on their slots. Where ``slot_h`` is None, a slot is one hour
    long, half an hour up to ``NEAR_H`` hours from now, and twice as long beyond each ``FAR_H``.
    """
    useful = [d for d in demands if d.hours_left > 0]
    if not useful:
        return ()
    first = min(d.release_h for d in useful)
    last = max(d.due_h for d in useful)
    edges = [first, *_clock_cuts(now, first, last, slot_h), last]
    edges += [at for at in cuts_h if first < at < last]
    if len(useful) <= MAX_CUT_JOBS:
        edges.extend(at for d in useful for at in (d.release_h, d.due_h))
    return tuple(
        Slot(start, end, scarce_now and start < AVAILABILITY_HORIZON_H)
        for start, end in pairwise(_distinct(edges))
    )


def _clock_cuts(now: datetime, first: float, last: float, slot_h: float | None) -> Iterable[float]:
    offset_h = (now - now.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds() / 3600
    at = first
    while at < last:
        step = slot_h or (0.5 if at < NEAR_H else 2.0 ** min(int(at // FAR_H), MAX_DOUBLINGS))
        at = (math.floor((at + offset_h) / step + 1e-6) + 1) * step - offset_h
        if at - first > MERGE_SHARE * step and last - at > MIN_H:
            yield at


def event_slots(
    demands: Sequence[Demand], *, scarce_now: bool, dates_h: Iterable[float] = ()
) -> tuple[Slot, ...]:
    """Return the slots between all releases and due times, cut where availability is last assumed.

    ``dates_h``, in hours from now, are further cuts: where dated capacity begins and ends. Where
    prices do not change over the horizon, one job needs no finer slots.
    """
    times = {t for d in demands if d.hours_left > 0 for t in (d.release_h, d.due_h)}
    if not times:
        return ()
    first, last = min(times), max(times)
    if scarce_now and first < AVAILABILITY_HORIZON_H < last:
        times.add(AVAILABILITY_HORIZON_H)
    times.update(date for date in dates_h if first < date < last)
    edges = _distinct(times)
    return tuple(
        Slot(start, end, scarce_now and end <= AVAILABILITY_HORIZON_H + 1e-9)
        for start, end in pairwise(edges)
    )


def _distinct(times: Iterable[float]) -> list[float]:
    """Ascending, without edges closer than a second, which no start-up could use."""
    edges: list[float] = []
    for time in sorted(times):
        if math.isfinite(time) and (not edges or time - edges[-1] > MIN_H):
            edges.append(time)
    return edges
