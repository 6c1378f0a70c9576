"""The spot gangs that a job's program weighs, and what their pools are together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costopt.domain.market import Pool
from costopt.domain.view import JobView
from costopt.market.lifetime import Lifetimes, Rates
from costopt.strategies.deadline_terms import Lane, Terms
from costopt.strategies.option import Option
from costopt.strategies.reserve import is_running

HOP_AGE_H = 0.5
"""Age of a pool that is gone to when another is lost. Shortage is shared, so what is left then is
often new; on generated harsh markets 2 h made the program trust in pools that soon went too."""

LONG_DOWN_H = 2.0
"""A pool away for longer than this is not taken to be back soon with its share of the time."""

PRICE_FACTOR, RATE_FACTOR, SHARE_STEP = 1.03, 1.2, 0.1
"""By how much prices, rates and shares may move before the program is solved anew."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A spot gang with what is known of its pool; ``share`` of the time there is capacity.

    ``present`` says that it is exactly what the job runs on now.
    """

    option: Option
    up: bool
    present: bool
    age_h: float
    share: float
    rates: Rates

    @property
    def key(self) -> tuple[str, int]:
        """Pool and nodes."""
        return str(self.option.pool), self.option.nodes

    @property
    def long_down_class(self) -> int:
        """The class of age of a pool that has been down for long, 0 for others."""
        of_age = self.rates.class_at(self.age_h)
        return 0 if self.up or of_age <= self.rates.class_at(LONG_DOWN_H) else of_age


def look(
    job_view: JobView,
    gangs: Sequence[Option],
    fallback: Option,
    lifetimes: Lifetimes,
    most: int,
) -> list[Candidate]:
    """The present gang, and of the ``most`` best pools the gang with the cheapest work.

    Gangs slower than the fallback are passed over where the pool has faster ones: what they do
    would have to be caught up. A pool that is seldom up does not displace a dearer one that is:
    what counts is the price for each share of the time. In a fixed order, for pools that come and
    go not to make a program of their own each time.
    """
    weighed = [_candidate(job_view, option, lifetimes) for option in gangs]
    present = [candidate for candidate in weighed if candidate.present]
    by_pool: dict[Pool, Candidate] = {}
    for candidate in sorted(weighed, key=lambda each: _preference(each, fallback)):
        by_pool.setdefault(candidate.option.pool, candidate)
    best = sorted(by_pool.values(), key=_price)[:most]
    chosen = {candidate.key: candidate for candidate in (*best, *present)}
    return [chosen[each] for each in sorted(chosen)]


def key(job: str, option: Option) -> tuple[str, str, int]:
    """Under what a gang's capacity is learned: other jobs' nodes take from the same pool."""
    return gang_key(job, option.pool, option.nodes)


def gang_key(job: str, pool: Pool, nodes: int) -> tuple[str, str, int]:
    """The same, of a gang by its pool and size."""
    return job, str(pool), nodes


def terms(
    candidates: Sequence[Candidate], fallback: Option, step_s: float, guard_s: float
) -> Terms:
    """The program's terms, one lane per candidate."""
    return Terms(
        step_h=step_s / 3600,
        lanes=tuple(_lane(candidate, fallback, step_s) for candidate in candidates),
        safe_cost=fallback.score_usd_per_hour * step_s / 3600,
        guard=guard_s / step_s,
        hop_class=candidates[0].rates.class_at(HOP_AGE_H),
    )


def moved(old: Terms, new: Terms) -> bool:
    """Whether the estimates differ by so much that the values must be computed anew."""
    if len(old.lanes) != len(new.lanes) or old.step_h != new.step_h:
        return True
    if abs(old.guard - new.guard) > 0.01 or _apart(old.safe_cost, new.safe_cost):
        return True
    return any(_lane_moved(a, b) for a, b in zip(old.lanes, new.lanes, strict=True))


def _candidate(job_view: JobView, option: Option, lifetimes: Lifetimes) -> Candidate:
    known = key(job_view.job.name, option)
    return Candidate(
        option=option,
        up=option.free or option.running,
        present=is_running(job_view, option.targets),
        age_h=lifetimes.age_h(known),
        share=lifetimes.share(known),
        rates=lifetimes.rates(known),
    )


def _preference(candidate: Candidate, fallback: Option) -> tuple[bool, float]:
    """Among the gangs of a pool: those that keep pace by price, then the others by speed."""
    option = candidate.option
    if option.units_per_s < fallback.units_per_s * (1.0 - 1e-9):
        return True, -option.units_per_s
    return False, option.score_usd_per_unit


def _price(candidate: Candidate) -> tuple[float, tuple[str, int]]:
    """Among pools."""
    return candidate.option.score_usd_per_unit / max(candidate.share, 0.01), candidate.key


def _lane(candidate: Candidate, fallback: Option, step_s: float) -> Lane:
    option, down_class = candidate.option, candidate.long_down_class
    share = candidate.share
    if down_class:
        comes_per_hour = candidate.rates.down_per_hour[down_class]
        share = min(share, -math.expm1(-comes_per_hour * LONG_DOWN_H))
    return Lane(
        cost=option.score_usd_per_hour * step_s / 3600,
        speed=option.units_per_s / fallback.units_per_s,
        start=option.start_s / step_s,
        rates=candidate.rates,
        share=share,
        down_class=down_class,
    )


def _lane_moved(old: Lane, new: Lane) -> bool:
    return (
        _apart(old.cost, new.cost)
        or _apart(old.speed, new.speed)
        or abs(old.start - new.start) > 0.01
        or abs(old.share - new.share) > SHARE_STEP
        or old.down_class != new.down_class
        or old.rates.differs(new.rates, RATE_FACTOR)
    )


def _apart(old: float, new: float) -> bool:
    return abs(new - old) > (PRICE_FACTOR - 1.0) * max(abs(old), 1e-9)
