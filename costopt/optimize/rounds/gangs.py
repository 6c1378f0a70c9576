"""The gangs that jobs can run on, with the price of a GPU at which each larger one pays.

A job of weight w (what an hour until its end is worth) that runs on g GPUs at speed s pays
(w + λ g) / s for a unit of work at the price λ of a GPU-hour. Between two neighbouring gangs a < b
the larger is cheaper as long as λ < w (s_b - s_a) / (g_b s_a - g_a s_b): its *step price*. Gangs
that are cheapest at no price are left out, so that step prices fall from step to step.

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


RIGID = SpeedCurve(shrink=1, grow=1)


@dataclass(frozen=True, slots=True, eq=False)
class GangTable:
    """The gangs of jobs, one row each, the smallest first; rows are padded by their largest.

    ``gpus`` and ``speed`` are of shape (jobs, gangs), ``step_gpus`` and ``step_price`` of shape
    (jobs, gangs - 1): what each larger gang adds, and its step price per unit of weight, NO_STEP in
    the padding. ``asked`` is the column of the gang that was asked for, ``last`` of the largest.
    """

    gpus: Ints
    speed: Floats
    step_gpus: Ints
    step_price: Floats
    asked: Ints
    last: Ints

    @classmethod
    def of(cls, options: Sequence[Sequence[Option]], asked: Sequence[int]) -> GangTable:
        """Return the table of each job's options; ``asked`` holds GPUs that are among them."""
        kept = [_useful(each, gpus) for each, gpus in zip(options, asked, strict=True)]
        width = max((len(each) for each in kept), default=1)
        padded = [[*each, *[each[-1]] * (width - len(each))] for each in kept]
        pairs = np.array(padded, dtype=np.float64).reshape(len(kept), width, 2)
        gpus, speed = pairs[:, :, 0].astype(np.int64), pairs[:, :, 1]
        step = np.diff(gpus, axis=1)
        gain = np.diff(speed, axis=1)
        pay = gpus[:, 1:] * speed[:, :-1] - gpus[:, :-1] * speed[:, 1:]
        price = np.where(step > 0, gain / np.maximum(pay, 1e-12), NO_STEP)
        column = (gpus == np.array(asked, dtype=np.int64)[:, None]).argmax(axis=1)
        last = np.array([len(each) - 1 for each in kept], dtype=np.int64)
        return cls(gpus, speed, step, price, column, last)

    def rows(self, chosen: Ints) -> GangTable:
        """Return the table of some of the jobs."""
        return GangTable(
            self.gpus.take(chosen, 0), self.speed.take(chosen, 0), self.step_gpus.take(chosen, 0),
            self.step_price.take(chosen, 0), self.asked.take(chosen), self.last.take(chosen),
        )  # fmt: skip

    def with_later_price(self, later: Floats) -> GangTable:
        """Return the table with the step prices of jobs for which the price at their end is less,
        ``later`` of the present one."""
        some = np.flatnonzero(later < 1)
        if not len(some):
            return self
        gpus, speed, step = self.gpus[some], self.speed[some], self.step_gpus[some]
        slope = (np.diff(speed, axis=1) / np.maximum(step, 1))[:, :, None]
        pay = speed[:, None, :] - slope * (later[some][:, None] * gpus)[:, None, :]
        least = (slope / np.where(pay > 0, pay, 1e-12)).min(axis=2)
        price = self.step_price.copy()
        price[some] = np.where(step > 0, np.minimum.accumulate(least, axis=1), NO_STEP)
        return replace(self, step_price=price)

    def column(self, held: Ints) -> Ints:
        """Return the column of each job's gang of this many GPUs; 0 where it has none."""
        column: Ints = (self.gpus == held[:, None]).argmax(axis=1)
        return column

    def pick(self, column: Ints) -> tuple[Ints, Floats]:
        """Return GPUs and speed of one gang per job."""
        rows = np.arange(len(column))
        return self.gpus[rows, column], self.speed[rows, column]


def _step_price(small: Option, large: Option) -> float:
    pay = large[0] * small[1] - small[0] * large[1]
    return (large[1] - small[1]) / max(pay, 1e-12)


def _useful(options: Sequence[Option], asked: int) -> list[Option]:
    """The gangs that are cheapest at some price, and the one asked for."""
    kept: list[Option] = []
    for option in sorted(options):
        if not kept or option[1] > kept[-1][1] or option[0] == asked:
            kept.append(option)
    at = 1
    while at < len(kept) - 1:
        before, here, after = kept[at - 1 : at + 2]
        if here[0] != asked and _step_price(here, after) >= _step_price(before, here):
            del kept[at]
            at = max(1, at - 1)
        else:
            at += 1
    return kept
