"""The interruptible candidates of a job's program, and the state of the job in its steps.

Candidates are the spot and flex-start gangs that the program considers, with what is known of their
pools. The state is the remaining time and work, in steps of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.market import Pool
from costopt.domain.view import JobView, View
from costopt.market.lifetime import AgeRates, LifetimeModel, lifetime_key
from costopt.strategies.gang_options import GangOption, unsaved_s
from costopt.strategies.remaining_time import (
    is_running,
    remaining_startup_s,
    seconds_left,
    seconds_to_finish,
)

LONG_DOWN_H = 2.0
"""A pool away for longer than this is not taken to be back soon with its share of the time."""

ELASTIC_POOLS = 2
"""Of how many pools, those with the cheapest work, several gang sizes are weighed."""

SIMILAR_HAZARD_RATIO = 0.8
"""Another size is weighed where it is there for this share of the first one's time, or now."""

FASTER_RATIO = 1.8
"""How much faster than the first size another is that is weighed to get ahead with. The fastest
that pays cost 6 to 20 % more on generated harsh markets: it loses more with each interruption."""

NEVER_PER_HOUR = 1e-6
"""How often the capacity of a flex-start gang goes: the program takes logarithms of rates."""


@dataclass(frozen=True, slots=True)
class InterruptibleCandidate:
    """A spot or flex-start gang with what is known of its pool.

    ``share`` of the time there is capacity. ``present`` says that it is exactly what the job runs
    on now.
    """

    option: GangOption
    up: bool
    present: bool
    age_h: float
    share: float
    rates: AgeRates

    @property
    def long_down_class(self) -> int:
        """The class of age of a pool that has been down for long, 0 for others."""
        of_age = self.rates.class_at(self.age_h)
        return 0 if self.up or of_age <= self.rates.class_at(LONG_DOWN_H) else of_age


@dataclass(frozen=True, slots=True)
class _CandidateGang:
    """An option and its share of the time."""

    option: GangOption
    share: float

    @property
    def up(self) -> bool:
        return self.option.free or self.option.running

    @property
    def identity(self) -> tuple[str, int]:
        """Place and nodes."""
        return self.option.place, self.option.nodes


def collect_candidates(
    job_view: JobView,
    gangs: Sequence[GangOption],
    fallback: GangOption,
    lifetimes: LifetimeModel,
    most: int,
) -> list[InterruptibleCandidate]:
    """The present gang, a gang of each of the ``most`` best pools, and more sizes in two.

    A pool that is seldom up does not displace a costlier one that is: what counts is the price for
    each share of the time. In a fixed order, for pools that come and go not to make a program of
    their own each time.
    """
    by_place: dict[str, list[_CandidateGang]] = {}
    for option in gangs:
        share = _share(job_view, option, lifetimes)
        by_place.setdefault(option.place, []).append(_CandidateGang(option, share))
    sizes = sorted((_sizes(each, fallback) for each in by_place.values()), key=_price)[:most]
    chosen = {each[0].identity: each[0].option for each in sizes}
    for each in sorted(sizes, key=lambda each: each[0].option.score_usd_per_unit)[:ELASTIC_POOLS]:
        chosen |= {gang.identity: gang.option for gang in each}
    chosen |= {_CandidateGang(o, 0.0).identity: o for o in gangs if is_running(job_view, o.targets)}
    return [candidate_of(job_view, chosen[each], lifetimes) for each in sorted(chosen)]


def option_key(job: str, option: GangOption) -> tuple[str, str, int]:
    """The key under which capacity is learned: other jobs' nodes take from the same pool."""
    return lifetime_key(job, option.place, option.nodes)


def candidate_of(
    job_view: JobView, option: GangOption, lifetimes: LifetimeModel
) -> InterruptibleCandidate:
    """Return the gang with what is known of its pool; safe capacity is taken to last."""
    known = option_key(job_view.job.name, option)
    lasting = not option.pool.capacity_type.is_interruptible
    rates = _lasting(lifetimes.prior) if lasting else lifetimes.rates(known)
    age_h = 0.0 if lasting else lifetimes.age_h(known)
    if option.parts:
        job = job_view.job.name
        if option.free or option.running:
            age_h = min(lifetimes.age_h(part_key(job, part.pool)) for part in option.parts)
        rates = _of_parts(job, option, lifetimes, rates, lifetimes.rates)
    return InterruptibleCandidate(
        option=option,
        up=option.free or option.running,
        present=is_running(job_view, option.targets),
        age_h=age_h,
        share=_share(job_view, option, lifetimes),
        rates=rates,
    )


def part_key(job: str, pool: Pool) -> tuple[str, str, int]:
    """Return the key under which the zone of a spread's part is known: whether it has any room."""
    return lifetime_key(job, str(pool), 1)


def _of_parts(
    job: str,
    option: GangOption,
    lifetimes: LifetimeModel,
    rates: AgeRates,
    rates_of: Callable[[tuple[str, str, int]], AgeRates],
) -> AgeRates:
    """The rates of a spread, which is as old as its youngest part and goes with the first.

    Parts that are older keep their own age's rate until the youngest has reached it. The sum takes
    them for independent; shortage is shared, so they go less often than that. ``rates`` are those
    at which the zones together come and go.
    """
    keys = [part_key(job, target.pool) for target in option.parts]
    there = option.free or option.running
    each = [rates_of(key) for key in keys]
    least = [
        part.class_at(lifetimes.age_h(key) if there else 0.0)
        for part, key in zip(each, keys, strict=True)
    ]
    ends = tuple(
        sum(p.up_per_hour[max(k, first)] for p, first in zip(each, least, strict=True))
        for k in range(len(rates.from_h))
    )
    return replace(rates, up_per_hour=ends)


def candidate_scenarios(
    job: str, candidates: Sequence[InterruptibleCandidate], lifetimes: LifetimeModel
) -> Iterator[tuple[float, list[InterruptibleCandidate]]]:
    """Yield the candidates with what their rates may be, each with its probability."""
    spot = [c.option for c in candidates if c.option.pool.capacity_type.is_interruptible]
    keys = [option_key(job, option) for option in spot]
    keys += [part_key(job, part.pool) for option in spot for part in option.parts]
    if not keys:
        yield 1.0, list(candidates)
        return
    for probability, rates in lifetimes.scenarios(keys):
        known = dict(zip(keys, rates, strict=True))
        supposed = []
        for each in candidates:
            its = known.get(option_key(job, each.option), each.rates)
            if each.option.parts:
                its = _of_parts(job, each.option, lifetimes, its, known.__getitem__)
            supposed.append(replace(each, rates=its))
        yield probability, supposed


def _share(job_view: JobView, option: GangOption, lifetimes: LifetimeModel) -> float:
    """Flex-start can be asked for at any time: that it may not come is in its start."""
    if not option.pool.capacity_type.is_interruptible:
        return 1.0
    return lifetimes.availability(option_key(job_view.job.name, option))


def _lasting(rates: AgeRates) -> AgeRates:
    return replace(rates, up_per_hour=(NEVER_PER_HOUR,) * len(rates.from_h))


def _sizes(gangs: Sequence[_CandidateGang], fallback: GangOption) -> list[_CandidateGang]:
    """The gangs of a pool that are weighed, the first of them always.

    First the cheapest work of those that keep pace with the fallback, else the fastest: what a
    slower one does would have to be caught up. Then the cheapest work of all, one about twice as
    fast that is still cheaper than the fallback, and the fastest that is there where the first is
    not.
    """
    first = min(gangs, key=lambda gang: _preference(gang, fallback))
    often = [g for g in gangs if g.up or g.share >= SIMILAR_HAZARD_RATIO * first.share]
    return list(dict.fromkeys((first, *_others(often, first, fallback))))


def _others(
    gangs: Iterable[_CandidateGang], first: _CandidateGang, fallback: GangOption
) -> Iterator[_CandidateGang]:
    known = tuple(gangs)
    paying = [g for g in known if g.option.score_usd_per_unit < fallback.score_usd_per_unit]
    if paying:
        yield min(paying, key=lambda g: (g.option.score_usd_per_unit, g.option.nodes))
    twice = [g for g in paying if g.option.units_per_s >= FASTER_RATIO * first.option.units_per_s]
    if twice:
        yield min(twice, key=lambda g: (g.option.units_per_s, g.option.nodes))
    there = [g for g in known if g.up]
    if there and not first.up:
        yield max(there, key=lambda g: (g.option.units_per_s, -g.option.nodes))


def _preference(gang: _CandidateGang, fallback: GangOption) -> tuple[bool, float]:
    """Among the gangs of a pool: those that keep pace by price, then the others by speed."""
    option = gang.option
    if option.units_per_s < fallback.units_per_s * (1.0 - 1e-9):
        return True, -option.units_per_s
    return False, option.score_usd_per_unit


def _price(sizes: Sequence[_CandidateGang]) -> tuple[float, tuple[str, int]]:
    """Among pools, by the first size."""
    first = sizes[0]
    return first.option.score_usd_per_unit / max(first.share, 0.01), first.identity


MAX_STEPS, MAX_JOINT_STEPS = 720, 240
"""A run to the deadline is cut into no more steps than this, on one gang and on several, whose
programs are larger: 5 days and 40 h of 10 minutes."""


class ProgramState:
    """The remaining time and work of a job, in steps of its program.

    ``step_s`` is the least; from the job's start to its deadline there are ``most`` at most. A gang
    that is left without being lost is paid for ``leave_s`` more.
    """

    def __init__(
        self,
        view: View,
        job_view: JobView,
        fallback: GangOption,
        units: float,
        step_s: float,
        most: int = MAX_STEPS,
        leave_s: float = 0.0,
    ) -> None:
        job = job_view.job
        span_s = (job.until_at - job.start_at).total_seconds()
        ticks = max(1, round(step_s / view.tick_s))
        self.view, self.job_view, self.fallback, self.units = view, job_view, fallback, units
        self.step_s = max(ticks * view.tick_s, span_s / most)
        self.leave_s = leave_s
        self.left_s = seconds_left(view, job_view)
        self.work_s = seconds_to_finish(fallback, job, units, 0.0)
        self.start_left_s = remaining_startup_s(view, job_view)
        self.guard_s = fallback.start_s + seconds_at_risk(view, job_view)

    @property
    def steps(self) -> float:
        """The steps to the deadline."""
        return self.left_s / self.step_s

    @property
    def slack_steps(self) -> float:
        """Steps that may be spent on waiting or launching before the safe gang must be launched."""
        return (self.left_s - self.work_s - self.guard_s) / self.step_s

    def whole_cost(self, option: GangOption) -> float:
        """Of a launch of this gang and all the work that is left, if nothing comes between.

        It runs for a tick at least, as what is decided stands so long.
        """
        needed_s = max(seconds_to_finish(option, self.job_view.job, self.units), self.view.tick_s)
        work = tuple(option.work_left(self.job_view.job.work.amount - self.units))
        total_s = sum(seconds for _, seconds in work)
        nodes = sum(count * seconds for count, seconds in work) / total_s
        return option.score_usd_per_hour * nodes / option.nodes * needed_s / 3600

    def spans(self) -> list[tuple[datetime, datetime]]:
        """The steps that are left, the last first; of the present one what is still ahead."""
        now, step = self.view.now, timedelta(seconds=self.step_s)
        end_at = now + timedelta(seconds=self.left_s)
        count = max(1, math.ceil(self.steps - 1e-9))
        return [(max(now, end_at - (n + 1) * step), end_at - n * step) for n in range(count)]


def seconds_at_risk(view: View, job_view: JobView) -> float:
    """Time that an interruption within the tick can cost besides the start of another gang."""
    checkpoint = job_view.job.checkpoint
    if view.uninterruptible_s >= view.tick_s - 1e-6 and checkpoint.save_s == 0:
        return 0.0
    return view.tick_s + unsaved_s(checkpoint)
