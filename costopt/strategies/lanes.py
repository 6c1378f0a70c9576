"""What a job's program is solved for, and when it has moved so far that it must be solved anew."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from costopt.strategies.candidate import LONG_DOWN_H, InterruptibleCandidate
from costopt.strategies.deadline_terms import DeadlineProblem, ProgramStage, SpotOption, Tariff
from costopt.strategies.option import GangOption
from costopt.strategies.reserve import seconds_to_finish
from costopt.strategies.situation import ProgramState
from costopt.strategies.step_costs import step_objective_usd

NEW_POOL_AGE_H = 0.5
"""Age of a pool that is gone to when another is lost. Shortage is shared, so what is left then is
often new; on generated harsh markets 2 h made the program trust in pools that soon went too."""

PRICE_FACTOR, RATE_FACTOR, SHARE_STEP = 1.03, 1.2, 0.1
"""By how much prices, rates and shares may move before the program is solved anew."""


def build_problem(
    candidates: Sequence[InterruptibleCandidate], situation: ProgramState
) -> DeadlineProblem:
    """The program's terms, one lane per candidate."""
    fallback, step_s = situation.fallback, situation.step_s
    sizes = Counter(candidate.option.pool for candidate in candidates)
    lanes = tuple(_lane(each, situation, sizes[each.option.pool] > 1) for each in candidates)
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
    """Whether the estimates differ by so much that the values must be computed anew."""
    if len(old.lanes) != len(new.lanes) or old.step_h != new.step_h:
        return True
    if abs(old.guard - new.guard) > 0.01 or _apart(old.safe_cost, new.safe_cost):
        return True
    if _tariff_moved(old.safe_tariff, new.safe_tariff) or len(old.stages) != len(new.stages):
        return True
    return any(_lane_moved(a, b) for a, b in zip(old.lanes, new.lanes, strict=True)) or any(
        _stage_moved(a, b) for a, b in zip(old.stages, new.stages, strict=True)
    )


def _lane(
    candidate: InterruptibleCandidate, situation: ProgramState, one_of_several: bool
) -> SpotOption:
    option, down_class = candidate.option, candidate.long_down_class
    share, step_s = candidate.share, situation.step_s
    if down_class:
        comes_per_hour = candidate.rates.down_per_hour[down_class]
        share = min(share, -math.expm1(-comes_per_hour * LONG_DOWN_H))
    tariff = step_objective_usd(situation, option)
    return SpotOption(
        cost=_cost(option, tariff, step_s),
        speed=option.units_per_s / situation.fallback.units_per_s,
        start=option.start_s / step_s,
        rates=candidate.rates,
        share=share,
        down_class=down_class,
        place=str(option.pool) if one_of_several else "",
        tariff=tariff,
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
