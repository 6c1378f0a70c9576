"""The arithmetic of one gang that trains at a speed of its own in each phase."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

TINY_S = 1e-6
"""One tick of datetime: instants closer than this are the same."""


@dataclass(frozen=True, slots=True)
class SimulatedGang:
    """Nodes that train together from ``trains_at`` on, beginning at ``base_units``.

    Training runs in cycles: ``interval_s`` of work, then a save that blocks it for ``save_s`` and
    makes the work done so far durable when it ends. The last cycle ends with the work. So after
    e seconds, with the cycle z = interval + save and k = ⌊e / z⌋ whole cycles, it has trained
    min(k · interval + min(e − k · z, interval), work) seconds, of which k · interval are saved.
    ``saved_units`` is what is durable at the beginning, where that is less than ``base_units``.
    ``paces`` are (units, share): up to these units the speed is this share of ``units_per_s``;
    beyond the last it is ``units_per_s``.
    """

    generation: int
    node_ids: tuple[str, ...]
    trains_at: datetime
    base_units: float
    amount_units: float
    units_per_s: float
    interval_s: float
    save_s: float
    saved_units: float | None = None
    paces: tuple[tuple[float, float], ...] = ()
    work_s: float = field(init=False)
    training_ends_at: datetime = field(init=False)
    finishes_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        work_s = sum(units / speed for units, speed in self._stretches())
        saves = max(math.ceil(work_s / self.interval_s - 1e-9) - 1, 0)
        ends_at = self.trains_at + timedelta(seconds=work_s + saves * self.save_s)
        object.__setattr__(self, "work_s", work_s)
        object.__setattr__(self, "training_ends_at", ends_at)
        object.__setattr__(self, "finishes_at", ends_at + timedelta(seconds=self.save_s))

    def done_at(self, when: datetime) -> float:
        """Units done by ``when``, saved or not."""
        if when >= self.training_ends_at:
            return self.amount_units
        elapsed_s = (when - self.trains_at).total_seconds()
        if elapsed_s <= 0:
            return self.base_units
        cycles = self._cycles(elapsed_s)
        into_cycle_s = max(elapsed_s - cycles * (self.interval_s + self.save_s), 0.0)
        trained_s = cycles * self.interval_s + min(into_cycle_s, self.interval_s)
        return self._units_after(min(trained_s, self.work_s))

    def speed_at(self, units: float) -> float:
        """Units/s once this much is done."""
        ahead = (share for until_units, share in self.paces if units < until_units)
        return self.units_per_s * next(ahead, 1.0)

    def saved_at(self, when: datetime) -> float:
        """Units durable by ``when``."""
        if when >= self.finishes_at:
            return self.amount_units
        elapsed_s = min(when, self.training_ends_at) - self.trains_at
        cycles = self._cycles(elapsed_s.total_seconds())
        if cycles == 0 and self.saved_units is not None:
            return self.saved_units
        return self._units_after(cycles * self.interval_s)

    def last_saved_at(self, when: datetime) -> datetime | None:
        """When the newest checkpoint of this gang became durable, None before the first."""
        if when >= self.finishes_at:
            return self.finishes_at
        elapsed_s = min(when, self.training_ends_at) - self.trains_at
        cycles = self._cycles(elapsed_s.total_seconds())
        if cycles == 0:
            return None
        return self.trains_at + timedelta(seconds=cycles * (self.interval_s + self.save_s))

    def _stretches(self) -> Iterator[tuple[float, float]]:
        """(units, units/s) of what is ahead at the beginning, speed by speed."""
        at_units = self.base_units
        for until_units, share in (*self.paces, (self.amount_units, 1.0)):
            end_units = min(until_units, self.amount_units)
            if end_units > at_units:
                yield end_units - at_units, share * self.units_per_s
                at_units = end_units

    def _units_after(self, trained_s: float) -> float:
        """Units done after so many seconds of training, without the saves in between."""
        done_units = self.base_units
        for units, speed in self._stretches():
            if trained_s * speed <= units:
                return done_units + trained_s * speed
            done_units, trained_s = done_units + units, trained_s - units / speed
        return done_units

    def _cycles(self, elapsed_s: float) -> int:
        """Whole cycles of work and save; instants a microsecond apart count as one."""
        return max(int((elapsed_s + TINY_S / 2) / (self.interval_s + self.save_s)), 0)
