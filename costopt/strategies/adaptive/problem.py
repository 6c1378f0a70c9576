"""The input of the dynamic program: lanes, the safe gang, stages of work and costs by step.

``build_problem`` makes it from the candidates; ``has_changed`` decides when it has moved so far
that the program must be solved again; ``step_objective_usd`` gives the cost of a node-hour in
each step to the deadline, where prices or carbon are forecast.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from costopt.domain.estimate import Series
from costopt.market.lifetime import AgeRates
from costopt.strategies.adaptive.candidates import LONG_DOWN_H, InterruptibleCandidate, ProgramState
from costopt.strategies.gang_options import GangOption
from costopt.strategies.remaining_time import seconds_to_finish

Tariff = tuple[float, ...]
"""What a step costs, as a factor, by the steps to go when it begins, from 0 up; the last factor
holds for more. Empty where all steps cost the same."""


@dataclass(frozen=True, slots=True)
class SpotOption:
    """A spot gang. ``cost`` is per step, ``speed`` in that of the safe gang.

    ``start`` is the work that it would do in the time of a launch, in steps of the safe gang.
    ``leave`` is what leaving it costs, if it is not lost.

    ``share`` is that of the time in which its pool has capacity. A pool that has been down for
    longer than the class of age tells, as another has gone since or is up, comes back no faster
    than at the class of age ``down_class``, until the program is solved again. Lanes with
    the same ``place`` are gangs of one pool, which come and go together; "" is one of its own.
    """

    cost: float
    speed: float
    start: float
    rates: AgeRates
    share: float = 1.0
    down_class: int = 0
    place: str = ""
    tariff: Tariff = ()
    leave: float = 0.0

    @property
    def cost_of_work(self) -> float:
        """Per step of the safe gang's work, in the mean over time."""
        mean = sum(self.tariff) / len(self.tariff) if self.tariff else 1.0
        return self.cost * mean / self.speed


@dataclass(frozen=True, slots=True)
class ProgramStage:
    """A stretch of the work, from ``begins`` to ``ends`` steps of the safe gang's work left.

    ``costs`` and ``speeds`` are those of each lane within it, in the units of ``SpotOption``;
    ``safe_cost`` is per step. Where it may not wait, it can still be begun late.
    """

    begins: float
    ends: float
    costs: tuple[float, ...]
    speeds: tuple[float, ...]
    safe_cost: float
    may_wait: bool = True


@dataclass(frozen=True, slots=True)
class DeadlineProblem:
    """The input of the program. All lanes have the same classes of age.

    ``guard`` is g. ``hop_class`` is the class of age of a pool chosen when another is lost.
    ``stages`` are all of the work, first to last; empty where all of it is as the lanes say.
    """

    step_h: float
    lanes: tuple[SpotOption, ...]
    safe_cost: float
    guard: float
    hop_class: int = 0
    safe_tariff: Tariff = ()
    stages: tuple[ProgramStage, ...] = ()
    heads: tuple[int, ...] = field(init=False)
    """The cheapest lane of each place, cheapest first."""

    def __post_init__(self) -> None:
        order = sorted(range(len(self.lanes)), key=lambda i: (self.lanes[i].cost_of_work, i))
        heads: dict[str | int, int] = {}
        for i in order:
            heads.setdefault(self.lanes[i].place or i, i)
        object.__setattr__(self, "heads", tuple(heads.values()))

    @property
    def classes(self) -> int:
        """Of age; one where there is no lane."""
        return len(self.lanes[0].rates.from_h) if self.lanes else 1

    @property
    def columns(self) -> int:
        """Values with so many steps to go, for each step to spare: of S, W and O."""
        return self.classes * (len(self.lanes) + 2 * (len(self.heads) + 1))

    def block_of(self, lane: int | None) -> int:
        """Where the place of a lane stands among the heads; after them where all are down."""
        if lane is None:
            return len(self.heads)
        place = self.lanes[lane].place
        if not place:
            return self.heads.index(lane)
        return next(b for b, head in enumerate(self.heads) if self.lanes[head].place == place)

    def faster_lanes(self) -> list[tuple[int, int]]:
        """Each block with the heads of those after it, that is costlier ones, that are faster."""
        return [
            (block, other)
            for block, head in enumerate(self.heads)
            for other in self.heads[block + 1 :]
            if self.lanes[other].speed > (1 + 1e-9) * self.lanes[head].speed
        ]


def factor(tariff: Tariff, steps: int) -> float:
    """Of the cost of the step that begins with so many steps to go."""
    return tariff[min(steps, len(tariff) - 1)] if tariff else 1.0


NEW_POOL_AGE_H = 0.5
"""Age of a pool chosen when another is lost. Shortage is shared, so what remains then is often
new; on generated harsh markets 2 h made the program rely on pools that were soon lost too."""

PRICE_FACTOR, RATE_FACTOR, SHARE_STEP = 1.03, 1.3, 0.1
"""By how much prices, rates and shares may move before the program is solved again."""


def build_problem(
    candidates: Sequence[InterruptibleCandidate], situation: ProgramState
) -> DeadlineProblem:
    """The program's terms, one lane per candidate."""
    fallback, step_s = situation.fallback, situation.step_s
    places = [candidate.option.place for candidate in candidates]
    sizes, latest = Counter(places), _latest_down(candidates)
    lanes = tuple(
        _lane(each, situation, place if sizes[place] > 1 else "", place == latest)
        for each, place in zip(candidates, places, strict=True)
    )
    safe_tariff = step_objective_usd(situation, fallback)
    return DeadlineProblem(
        step_h=step_s / 3600,
        lanes=lanes,
        safe_cost=_cost(fallback, safe_tariff, step_s),
        guard=situation.guard_s / step_s,
        hop_class=candidates[0].rates.class_at(NEW_POOL_AGE_H) if candidates else 0,
        safe_tariff=safe_tariff,
        stages=_stages([each.option for each in candidates], lanes, safe_tariff, situation),
    )


def has_changed(old: DeadlineProblem, new: DeadlineProblem) -> bool:
    """Whether the estimates differ by so much that the values must be computed again."""
    if len(old.lanes) != len(new.lanes) or old.step_h != new.step_h:
        return True
    if abs(old.guard - new.guard) > 0.01 or _apart(old.safe_cost, new.safe_cost):
        return True
    if _tariff_moved(old.safe_tariff, new.safe_tariff) or len(old.stages) != len(new.stages):
        return True
    return any(_lane_moved(a, b) for a, b in zip(old.lanes, new.lanes, strict=True)) or any(
        _stage_moved(a, b) for a, b in zip(old.stages, new.stages, strict=True)
    )


def _latest_down(candidates: Sequence[InterruptibleCandidate]) -> str | None:
    """The place that went last where all are down: the class of age is its own."""
    if not candidates or any(each.up for each in candidates):
        return None
    return min(candidates, key=lambda each: each.age_h).option.place


def _lane(
    candidate: InterruptibleCandidate, situation: ProgramState, place: str, class_is_its_own: bool
) -> SpotOption:
    option, down_class = candidate.option, candidate.long_down_class
    share, step_s = candidate.share, situation.step_s
    if down_class:
        comes_per_hour = candidate.rates.down_per_hour[down_class]
        share = min(share, -math.expm1(-comes_per_hour * LONG_DOWN_H))
    tariff = step_objective_usd(situation, option)
    speed = option.units_per_s / situation.fallback.units_per_s
    return SpotOption(
        cost=_cost(option, tariff, step_s),
        speed=speed,
        start=speed * option.start_s / step_s,
        rates=candidate.rates,
        share=share,
        down_class=0 if class_is_its_own else down_class,
        place=place,
        tariff=tariff,
        leave=option.score_usd_per_hour * situation.leave_s / 3600,
    )


def _cost(option: GangOption, tariff: Tariff, step_s: float) -> float:
    """Of a step, where there is a tariff as a factor on it."""
    usd_per_hour = option.nodes if tariff else option.score_usd_per_hour
    return usd_per_hour * step_s / 3600


def _stages(
    options: Sequence[GangOption],
    lanes: Sequence[SpotOption],
    safe_tariff: Tariff,
    situation: ProgramState,
) -> tuple[ProgramStage, ...]:
    """The job's phases; none where all of them are as the present one and may pause."""
    job, fallback, step_s = situation.job_view.job, situation.fallback, situation.step_s
    if len(job.phases) == 1 and job.phases[0].may_pause:
        return ()
    amount, done_units = job.work.amount, 0.0
    stages: list[ProgramStage] = []
    for place, (phase, stretch) in enumerate(zip(job.phases, fallback.stretches, strict=True)):
        theirs = [option.stretches[place] for option in options]
        stages.append(
            ProgramStage(
                begins=seconds_to_finish(fallback, job, amount - done_units, 0.0) / step_s,
                ends=seconds_to_finish(fallback, job, amount - stretch.until_units, 0.0) / step_s,
                costs=tuple(
                    lane.cost * their.nodes / option.nodes
                    for option, lane, their in zip(options, lanes, theirs, strict=True)
                ),
                speeds=tuple(their.units_per_s / stretch.units_per_s for their in theirs),
                safe_cost=_cost(fallback, safe_tariff, step_s) * stretch.nodes / fallback.nodes,
                may_wait=phase.may_pause,
            )
        )
        done_units = stretch.until_units
    return tuple(stages) if any(_differs(stage, stages[0]) for stage in stages) else ()


def _differs(stage: ProgramStage, first: ProgramStage) -> bool:
    figures = (*stage.costs, *stage.speeds, stage.safe_cost)
    firsts = (*first.costs, *first.speeds, first.safe_cost)
    same = all(math.isclose(a, b) for a, b in zip(figures, firsts, strict=True))
    return not (same and stage.may_wait)


def _lane_moved(old: SpotOption, new: SpotOption) -> bool:
    return (
        _apart(old.cost, new.cost)
        or _apart(old.speed, new.speed)
        or abs(old.start - new.start) > 0.01
        or abs(old.share - new.share) > SHARE_STEP
        or old.down_class != new.down_class
        or old.place != new.place
        or _tariff_moved(old.tariff, new.tariff)
        or old.rates.differs(new.rates, RATE_FACTOR)
    )


def _stage_moved(old: ProgramStage, new: ProgramStage) -> bool:
    figures = (*old.costs, *old.speeds, old.safe_cost)
    now = (*new.costs, *new.speeds, new.safe_cost)
    edges = abs(old.begins - new.begins) > 1.0 or abs(old.ends - new.ends) > 1.0
    return edges or any(_apart(a, b) for a, b in zip(figures, now, strict=True))


def _tariff_moved(old: Tariff, new: Tariff) -> bool:
    """As far as both reach: the steps that are still to go."""
    if bool(old) != bool(new):
        return True
    return any(_apart(a, b) for a, b in zip(old, new, strict=False))


def _apart(old: float, new: float) -> bool:
    return abs(new - old) > (PRICE_FACTOR - 1.0) * max(abs(old), 1e-9)


def step_objective_usd(situation: ProgramState, option: GangOption) -> Tariff:
    """The policy's objective by steps to go; empty where no series that counts is known.

    Step n lasts from n to n − 1 steps before the end of the time that is left; of the present one
    only what is still ahead counts. Figures without a series stay what they are now, and so do the
    prices of a spread over zones.
    """
    from costopt.optimize.slot_costs import time_weighted_means

    view, objective, pool = situation.view, situation.view.policy.objective, option.pool
    power = view.powers.get(pool)
    prices = _finite(view.price_forecasts.get(pool)) if objective.usd and not option.parts else None
    carbon = _finite(view.carbon_forecasts.get(f"{pool.provider}/{pool.region}"))
    if power is None or not objective.usd_per_tonne_co2e:
        carbon = None
    toll = view.limit_prices.get(pool)
    if prices is None and carbon is None and toll is None:
        return ()
    spans = situation.spans()
    efficiency = situation.job_view.job.scaling_efficiency(view.machines[pool], option.nodes)
    kwh = 0.0
    if power is not None:
        kwh = power.in_gang(efficiency).capped(option.power_cap_w).kwh(0.0, 3600.0)
    usd = (
        option.usd_per_hour / option.nodes if prices is None else time_weighted_means(prices, spans)
    )
    grams = (power.gco2e(kwh) or 0.0) if power is not None else 0.0
    score = objective.usd * np.asarray(usd) + objective.usd_per_kwh * kwh
    co2e = grams if carbon is None else kwh * time_weighted_means(carbon, spans)
    score = score + objective.usd_per_tonne_co2e * co2e / 1e6
    if toll is not None:
        score = score + time_weighted_means(toll, spans)
    by_step = np.broadcast_to(score, len(spans))
    return (float(by_step[0]), *by_step.tolist())


def _finite(series: Series | None) -> Series | None:
    return series if series is not None and all(map(math.isfinite, series.values)) else None
