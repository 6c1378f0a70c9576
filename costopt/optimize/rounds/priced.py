"""The policy `priced`: sizes from the price of a GPU.

Each job takes the gang that is cheapest at the present price, and the price is the least at which
all gangs fit. At the greatest price, jobs are admitted by their index until the cluster is full.
What is idle then lets waiting jobs start and running ones grow. A gang changes only where that pays
for the restart. A job that is behind its tenant's own partition comes first, and is not shrunk
below what it asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costopt.optimize.rounds.gangs import Flags, Floats, Ints
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.rigid import PROTECTED_S
from costopt.optimize.rounds.sizes import capacity_price, first_fit

MAX_PRICE = 2.0
"""Greatest price of a GPU-hour, in the mean weight of a job by the mean GPUs that a job asked for.
Chosen from 1, 2 and 3 on Philly, 2 to 15 October 2017."""
LATER_EXPONENT = 0.5
"""The price when the i-th largest of M jobs ends is (i/M) to this power of the present one. Where
none came, the price would fall with the number of jobs: 1 makes sizes those of heSRPT (Berg et al.,
2020). Chosen from 0.5, 0.7 and 1 on Kalos and Philly, 18 September 2017, with declared work; that
it is divided by 1 + spread where work is predicted, on Philly, 2 to 15 October."""
QUANTILES = np.array([-1.4, -0.53, 0.0, 0.53, 1.4])
"""The means of the fifths of a standard normal distribution."""
PLANNED_RESTARTS = 20.0
"""A gang of a ranked job changes where that pays within so many restarts: plans change, too. Where
work is predicted, the time is longer the less the price will have fallen when the job ends."""
MIN_GROWTH_GAIN_S = 60.0
"""What growth into idle GPUs must save beyond its restart."""


@dataclass(frozen=True, slots=True)
class PricedPolicy:
    """``restart_s`` is what a change of a gang costs a job; ``protected_s`` is how long a gang is
    left as it is where there is any other way."""

    restart_s: float = 60.0
    protected_s: float = PROTECTED_S

    def decide(self, jobs: RoundJobs, gpus: int) -> tuple[float, Ints]:
        """Return the price of a GPU-hour, and the sizes of the round."""
        if not len(jobs.held):
            return 0.0, jobs.held
        later = _later_price(jobs)
        jobs = replace(jobs, gangs=jobs.gangs.with_later_price(later))
        price, target = self._target(jobs, gpus)
        gain = self._gain(jobs, target, price, later)
        protected = jobs.held_s < self.protected_s
        is_smaller = (target > 0) & (target < jobs.held)
        is_larger = (target > jobs.held) & (jobs.is_behind | (gain > 0) & ~protected)
        is_kept = is_smaller | (target > 0) & (jobs.held > 0) & ~is_larger
        sizes = np.where(is_kept, jobs.held, target)
        _shed(jobs, sizes, target, gpus, 2 * protected + (gain <= 0))
        _start(jobs, sizes, gpus, price < jobs.price_cap)
        self._grow(jobs, sizes, gpus)
        return price, sizes

    def admit(self, jobs: RoundJobs, gpus: int, price: float) -> Ints:
        """Return the sizes with jobs that wait on idle GPUs, each on its gang at this price.

        One that is behind gets what it asked for, and GPUs by which others have grown, too.
        """
        jobs = replace(jobs, gangs=jobs.gangs.with_later_price(_later_price(jobs)))
        asked, _ = jobs.gangs.pick(jobs.gangs.asked)
        steps = jobs.gangs.step_price * jobs.weight[:, None]
        want, _ = jobs.gangs.pick((steps > price).sum(axis=1))
        want = np.where(jobs.is_behind, np.maximum(want, asked), want)
        value = jobs.weight * jobs.index / want
        order = np.lexsort((jobs.submit_s, -value))
        order = order[((jobs.held == 0) & (price < jobs.price_cap))[order]]
        grown = (jobs.held > asked) & ~jobs.is_behind & (jobs.held_s >= self.protected_s)
        sizes = jobs.held.copy()
        for behind, spare in ((True, int((jobs.held - asked)[grown].sum())), (False, 0)):
            may = order[jobs.is_behind[order] == behind]
            served = first_fit(may, want, gpus - int(sizes.sum()) + spare)
            sizes = np.where(served, want, sizes)
            over = int(sizes.sum()) - gpus
            if over > 0:
                _reduce(jobs, sizes, np.flatnonzero(grown), asked, over, jobs.is_behind)
        return sizes

    def _target(self, jobs: RoundJobs, gpus: int) -> tuple[float, Ints]:
        """The price, and the gangs that it gives, those that wait with 0."""
        table = jobs.gangs
        asked, _ = table.pick(table.asked)
        max_price = MAX_PRICE * float(jobs.weight.sum() / asked.sum())
        max_price = min(float(jobs.price_cap.max()), max_price)
        steps = table.step_price * jobs.weight[:, None]
        is_firm = jobs.is_behind[:, None] | (steps > jobs.price_cap[:, None])
        below = np.arange(steps.shape[1])[None, :] < table.asked[:, None]
        steps = np.where(is_firm & below, np.inf, steps)
        least = int(table.gpus[:, 0].sum())
        price = capacity_price(steps, table.step_gpus, least, gpus, max_price)
        want, speed = table.pick((steps > price).sum(axis=1))
        if int(want.sum()) <= gpus:
            return price, want
        protected = (jobs.held > 0) & (jobs.held_s < self.protected_s)
        want = np.where(protected, jobs.held, want)
        value = jobs.weight * jobs.index * speed / want
        order = np.lexsort((jobs.submit_s, -value, ~jobs.is_behind, ~protected))
        return price, np.where(first_fit(order, want, gpus), want, 0)

    def _gain(self, jobs: RoundJobs, target: Ints, price: float, later: Floats) -> Floats:
        """What the other gang gains beyond the work that the restart loses; work is worth what it
        costs there, or on the cheapest gang once the price is less."""
        gangs, column = jobs.gangs, jobs.gangs.column(target)
        _, speed = gangs.pick(gangs.column(jobs.held))
        _, new_speed = gangs.pick(column)
        cost = jobs.weight[:, None] + (later * price)[:, None] * gangs.gpus
        cost /= gangs.speed
        worth = np.where(later < 1, cost.min(axis=1), cost[np.arange(len(column)), column])
        falls = np.where(jobs.spread > 0, 1 - later, later < 1)
        limit_s: Floats = np.full(len(falls), np.inf)
        np.divide(PLANNED_RESTARTS * self.restart_s, falls, out=limit_s, where=falls > 0)
        lasts_s = np.minimum(jobs.remaining_s / speed, limit_s)
        gain = (worth * (new_speed - speed) - price * (target - jobs.held)) * lasts_s
        return gain - worth * new_speed * self.restart_s

    def _grow(self, jobs: RoundJobs, sizes: Ints, gpus: int) -> None:
        """Let the idle GPUs go to the steps that end most work, one step a job and round."""
        idle = gpus - int(sizes.sum())
        if idle <= 0:
            return
        table = jobs.gangs
        column = table.column(sizes)
        _, speed = table.pick(column)
        added = table.gpus - sizes[:, None]
        rate = (table.speed - speed[:, None]) / np.maximum(added, 1)
        larger = np.where((added > 0) & (added <= idle), rate, -1.0).argmax(axis=1)
        more, faster = table.pick(larger)
        is_changed = sizes != jobs.held
        restart_s = np.where(is_changed, 0.0, self.restart_s)
        saved_s = jobs.remaining_s / speed - jobs.remaining_s / faster - restart_s
        is_short = jobs.is_behind & (column < table.asked)
        may = is_changed | is_short | (jobs.held_s >= self.protected_s)
        may &= (sizes > 0) & (larger > column)
        may &= (saved_s > MIN_GROWTH_GAIN_S) & (more - sizes <= idle)
        growing = np.flatnonzero(may)
        step = (more - sizes)[growing]
        value = (jobs.weight * jobs.index * (faster - speed))[growing] / step
        order = np.lexsort((-value, ~is_short[growing]))
        served = first_fit(order, step, idle)
        sizes[growing[served]] += step[served]


def _later_price(jobs: RoundJobs) -> Floats:
    """The price when each job will have ended, by the present one: it follows the part of the jobs
    that are expected to end no sooner, the less the more uncertain that is.

    Where GPUs elsewhere have a price the one here stays as it is.
    """
    ranked = np.isinf(jobs.price_cap)
    middle = np.log(np.maximum(jobs.remaining_s.round(6), 1.0)) - jobs.spread**2 / 2
    ends = middle[:, None] + jobs.spread[:, None] * QUANTILES
    all_ends = np.sort(ends[ranked].ravel())
    sooner = np.searchsorted(all_ends, ends, side="left").mean(axis=1)
    left = np.where(ranked, 1 - sooner / max(1, len(all_ends)), 1.0)
    return left ** (LATER_EXPONENT / (1 + jobs.spread))


def _shed(jobs: RoundJobs, sizes: Ints, target: Ints, gpus: int, spared: Ints) -> None:
    """Take back what was kept beyond the capacity: shrink, undo growth, then stop.

    It is done to those last that are ``spared`` most; a gang in its first minutes, where that is
    two or more, is smaller only once nothing grows.
    """
    if int(sizes.sum()) <= gpus:
        return
    shrinks = (sizes == jobs.held) & (jobs.held > target) & (target > 0)
    for candidates, smaller in (
        (shrinks & (spared < 2), target),
        ((sizes > jobs.held) & (jobs.held > 0), jobs.held),
        (shrinks, target),
        (sizes > 0, np.zeros_like(sizes)),
    ):
        over = int(sizes.sum()) - gpus
        if over <= 0:
            return
        _reduce(jobs, sizes, np.flatnonzero(candidates & (sizes > smaller)), smaller, over, spared)


def _reduce(
    jobs: RoundJobs, sizes: Ints, chosen: Ints, smaller: Ints, over: int, spared: Ints | Flags
) -> None:
    """Give some jobs their smaller size until ``over`` GPUs are released, those behind last."""
    value = (jobs.weight * jobs.index)[chosen]
    order = chosen[np.lexsort((value, jobs.is_behind[chosen], spared[chosen]))]
    released = (sizes - smaller)[order].cumsum()
    count = int(np.searchsorted(released, over)) + 1
    sizes[order[:count]] = smaller[order[:count]]


def _start(jobs: RoundJobs, sizes: Ints, gpus: int, may: Flags) -> None:
    """Let what waits and may start on its smallest gang, where GPUs are idle."""
    idle = gpus - int(sizes.sum())
    waiting = np.flatnonzero((sizes == 0) & may)
    if idle <= 0 or not len(waiting):
        return
    least = jobs.gangs.gpus[waiting, 0]
    value = (jobs.weight * jobs.index)[waiting] / least
    order = np.lexsort((jobs.submit_s[waiting], -value, ~jobs.is_behind[waiting]))
    served = first_fit(order, least, idle)
    sizes[waiting[served]] = least[served]
