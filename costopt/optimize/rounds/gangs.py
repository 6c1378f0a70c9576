"""The gangs that jobs can run on, with the price of a GPU at which each larger one pays.

A job of weight w (what an hour until its end is worth) that runs on g GPUs at speed s pays
(w + λ g) / s for a unit of work at the price λ of a GPU-hour. Between two neighbouring gangs a < b
the larger is cheaper as long as λ < w (s_b - s_a) / (g_b s_a - g_a s_b): its *step price*. A gang
that is cheapest at no price has the step price from the one before to the one after it that are, so
that step prices never rise: it is for GPUs that are idle.

Where the price will be μ λ when the job ends, work done before is worth what it costs then, the
least (w + μ λ g) / s, and the larger gang pays as long as the work that it adds is worth λ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Option = tuple[int, float]
"""GPUs, and the speed relative to that on the GPUs that the job asked for."""

NO_STEP = -1.0


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """How a job that asked for n GPUs is assumed to scale where no speeds of it were measured.

    On g GPUs it runs at (g/n) to the power ``below`` under n and ``above`` over it, from n /
    ``shrink`` to ``grow`` × n GPUs, at most ``max_gpus`` unless it asked for more. Measured
    exponents at a fixed global batch: 0.3 to 0.8 (profiles of Pollux, OSDI'21, and Sia, SOSP'23).
    """

    below: float = 0.85
    above: float = 0.68
    shrink: int = 8
    grow: int = 4
    max_gpus: int = 64

    def options(self, asked: int, smallest: int | None, largest: int | None) -> list[Option]:
        """Return the gangs that double and halve what was asked for, in whole GPUs."""
        low = -(-asked // self.shrink) if smallest is None else smallest
        high = max(asked, min(self.grow * asked, self.max_gpus)) if largest is None else largest
        sizes = {asked} | {asked << power for power in range(1, 21)}
        sizes |= {asked >> power for power in range(1, 21) if asked % (1 << power) == 0}
        return [
            (gpus, (gpus / asked) ** (self.below if gpus < asked else self.above))
            for gpus in sorted(sizes)
            if low <= gpus <= high
        ]


@dataclass(frozen=True, slots=True, eq=False)
class GangTable:
    """The gangs of jobs, one row each, the smallest first; rows are padded by their largest.

    ``gpus`` and ``speed`` are of shape (jobs, gangs), the others of (jobs, gangs - 1): what each
    larger gang adds, its step price per unit of weight, and the speed of a GPU more, NO_STEP in the
    padding. ``asked`` is the column of the gang that was asked for, ``last`` of the largest.
    """

    gpus: Ints
    speed: Floats
    step_gpus: Ints
    step_price: Floats
    slope: Floats
    asked: Ints
    last: Ints

    @classmethod
    def of(cls, options: Sequence[Sequence[Option]], asked: Sequence[int]) -> GangTable:
        """Return the table of each job's options; ``asked`` holds GPUs that are among them."""
        kept = [_rising(each, gpus) for each, gpus in zip(options, asked, strict=True)]
        width = max((len(each) for each in kept), default=1)
        padded = [[*each, *[each[-1]] * (width - len(each))] for each in kept]
        pairs = np.array(padded, dtype=np.float64).reshape(len(kept), width, 2)
        # Contiguous: of any other array, take copies the whole before it takes rows.
        gpus, speed = pairs[:, :, 0].astype(np.int64), pairs[:, :, 1].copy()
        step = np.diff(gpus, axis=1)
        steps = np.array([_steps(each, width) for each in kept]).reshape(len(kept), width - 1, 2)
        price, slope = steps[:, :, 0].copy(), steps[:, :, 1].copy()
        column = (gpus == np.array(asked, dtype=np.int64)[:, None]).argmax(axis=1)
        last = np.array([len(each) - 1 for each in kept], dtype=np.int64)
        return cls(gpus, speed, step, price, slope, column, last)

    def rows(self, chosen: Ints) -> GangTable:
        """Return the table of some of the jobs."""
        return GangTable(
            self.gpus.take(chosen, 0), self.speed.take(chosen, 0), self.step_gpus.take(chosen, 0),
            self.step_price.take(chosen, 0), self.slope.take(chosen, 0), self.asked.take(chosen),
            self.last.take(chosen),
        )  # fmt: skip

    def with_later_price(self, later: Floats) -> GangTable:
        """Return the table with the step prices of jobs for which the price at their end is less,
        ``later`` of the present one."""
        some = np.flatnonzero(later < 1)
        if not len(some):
            return self
        gpus, slope = self.gpus[some], self.slope[some][:, :, None]
        pay = self.speed[some][:, None, :] - slope * (later[some][:, None] * gpus)[:, None, :]
        least = (slope / np.where(pay > 0, pay, 1e-12)).min(axis=2)
        price = self.step_price.copy()
        price[some] = np.where(slope[:, :, 0] > 0, least, NO_STEP)
        return replace(self, step_price=price)

    def column(self, held: Ints) -> Ints:
        """Return the column of each job's largest gang of at most so many GPUs, or 0."""
        below: Ints = (self.gpus <= held[:, None]).sum(axis=1) - 1
        return np.clip(below, 0, self.last)

    def pick(self, column: Ints) -> tuple[Ints, Floats]:
        """Return GPUs and speed of one gang per job."""
        rows = np.arange(len(column))
        return self.gpus[rows, column], self.speed[rows, column]


def _rising(options: Sequence[Option], asked: int) -> list[Option]:
    """The gangs that are faster than all smaller ones, and the one asked for."""
    kept: list[Option] = []
    for option in sorted(options):
        if not kept or option[1] > kept[-1][1] or option[0] == asked:
            kept.append(option)
    return kept


def _steps(gangs: Sequence[Option], width: int) -> list[tuple[float, float]]:
    """Step price and speed per GPU of each step, of which the gangs between have equal ones."""
    found: list[tuple[float, float]] = []
    at = 0
    while at < len(gangs) - 1:
        gpus, speed = gangs[at]
        slopes = [(s - speed) / (g - gpus) for g, s in gangs[at + 1 :]]
        slope = max(slopes)
        count = slopes.index(slope) + 1
        g, s = gangs[at + count]
        price = (s - speed) / max(g * speed - gpus * s, 1e-12) if slope > 0 else NO_STEP
        found += [(price, slope if slope > 0 else NO_STEP)] * count
        at += count
    return found + [(NO_STEP, NO_STEP)] * (width - 1 - len(found))
