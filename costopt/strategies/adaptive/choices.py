"""The alternatives of a job now, and the expected cost of each from now to the job's end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from costopt.domain.view import Alternative, Target
from costopt.strategies.adaptive.candidates import InterruptibleCandidate, ProgramState
from costopt.strategies.adaptive.problem import Tariff, factor
from costopt.strategies.adaptive.program import ValueFunction
from costopt.strategies.remaining_time import is_running, seconds_to_finish
from costopt.strategies.shield import may_pause

NEAR_CHEAPEST_RATIO = 1.1
"""A pool that costs up to so many times the cheapest is not left for it."""

WAIT_COST_RATIO = 0.97
"""An hour that is forecast to cost less than this share of the present one may be waited for."""

MIN_WAIT_SAVING = 0.005
"""Share of the cost to the end that waiting has to save. The program sees a saving in waiting for
young capacity to become older; to the user, a job that could run does not.
"""

RESTART_SHARE = 0.5
"""Share of a start that a launch of the safe gang costs on top where any of several pools may come.
The program takes the rates for known and other pools for independent, so it sees too late that
waiting shows how short capacity is, and that the start is paid again after each return. On 64
windows of each kind of generated market this brings costs down by 1 to 3 %; with a whole start it
costs more over the five recorded zones."""

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class ValuedAlternative:
    """One alternative and what it costs."""

    cost: float
    targets: tuple[Target, ...]
    what: str
    estimates: str = ""


def value_alternatives(
    situation: ProgramState,
    program: ValueFunction,
    candidates: Sequence[InterruptibleCandidate],
    waiting: ValuedAlternative | None = None,
) -> list[ValuedAlternative]:
    """Every spot gang that is up, the safe gang, and ``waiting`` (None: not known yet) where it is
    weighed."""
    weighed = [
        _spot_choice(situation, program, candidate, lane)
        for lane, candidate in enumerate(candidates)
        if candidate.up
    ]
    weighed.append(_safe_choice(situation, program, candidates))
    stays = _waits_for_age(candidates) or _on_flex_start(candidates)
    if may_pause(situation.job_view) and not (stays and not _cheaper_later(situation, program)):
        weighed.append(waiting or value_waiting(situation, program, candidates))
    return weighed


def extra_for_waiting(best: ValuedAlternative, waiting: ValuedAlternative) -> float:
    """Return what a tick on nothing costs beyond the choice, infinite where waiting is too late."""
    return max(0.0, waiting.cost - best.cost) if math.isfinite(waiting.cost) else math.inf


def mix_alternatives(
    valued: Sequence[tuple[float, list[ValuedAlternative]]],
) -> list[ValuedAlternative]:
    """The same alternatives valued in several scenarios, at their mean by probability."""
    return [
        replace(
            weighed[0],
            cost=sum(
                probability * each.cost
                for (probability, _), each in zip(valued, weighed, strict=True)
                if probability > 0
            ),
        )
        for weighed in zip(*(weighed for _, weighed in valued), strict=True)
    ]


def choose(weighed: Sequence[ValuedAlternative]) -> ValuedAlternative:
    """Return the cheapest alternative, or spot that is up where waiting saves next to nothing."""
    best = min(weighed, key=lambda choice: choice.cost)
    if best.targets or not math.isfinite(best.cost):
        return best
    spot = (c for c in weighed if c.targets and _is_spot(c))
    runs = min(spot, key=lambda choice: choice.cost, default=best)
    return runs if runs.cost <= best.cost * (1 + MIN_WAIT_SAVING) else best


def _is_spot(choice: ValuedAlternative) -> bool:
    return all(target.pool.capacity_type.is_interruptible for target in choice.targets)


def explain_choice(best: ValuedAlternative, weighed: Sequence[ValuedAlternative]) -> str:
    """Return a sentence that explains the decision."""
    others = [c for c in weighed if c is not best and math.isfinite(c.cost)]
    others.sort(key=lambda choice: choice.cost)
    beside = ", ".join(f"{c.what} ${c.cost:.2f}" for c in others[:3])
    against = f", against {beside}" if beside else ": nothing else is in time"
    return f"{best.what}: ${best.cost:.2f} expected to the end{against}"


def alternatives(
    weighed: Sequence[ValuedAlternative], candidates: Sequence[InterruptibleCandidate]
) -> tuple[Alternative, ...]:
    """Every choice with its value, then those that were unavailable or not evaluated."""
    return (*map(_alternative, weighed), *_not_weighed(weighed, candidates))


def _waits_for_age(candidates: Sequence[InterruptibleCandidate]) -> bool:
    """Several pools, one of the cheapest up: then waiting is not weighed.

    It could pay only where an older pool comes later. That depends on how shortages coincide, of
    which the program knows little: the cents it saw in waiting cost hours of slack.
    """
    prices = [candidate.option.score_usd_per_unit for candidate in candidates]
    enough = NEAR_CHEAPEST_RATIO * min(prices, default=0.0)
    pairs = zip(candidates, prices, strict=True)
    return len(candidates) > 1 and any(each.up and price <= enough for each, price in pairs)


def _on_flex_start(candidates: Sequence[InterruptibleCandidate]) -> bool:
    """Whether the job runs on a gang that would have to be waited for again: then it is not left
    for spot that may come. The program takes it that there is a way back.
    """
    return any(
        each.present and not each.option.pool.capacity_type.is_interruptible for each in candidates
    )


def _cheaper_later(situation: ProgramState, program: ValueFunction) -> bool:
    """Whether some step ahead is forecast to cost notably less than the present one."""
    now = math.ceil(situation.steps - 1e-9)
    return any(
        tariff and min(tariff[: now + 1]) < WAIT_COST_RATIO * factor(tariff, now)
        for tariff in _tariffs(program)
    )


def _tariffs(program: ValueFunction) -> Iterator[Tariff]:
    yield program.terms.safe_tariff
    yield from (lane.tariff for lane in program.terms.lanes)


def _spot_choice(
    situation: ProgramState, program: ValueFunction, candidate: InterruptibleCandidate, lane: int
) -> ValuedAlternative:
    option = candidate.option
    of_age = candidate.rates.class_at(candidate.age_h)
    wait_s = 0.0 if option.wait_s is None else option.wait_s
    start_s = situation.start_left_s if candidate.present else option.start_s - wait_s
    waits = (wait_s - option.waited_s) / situation.step_s
    speed = option.units_per_s / situation.fallback.units_per_s
    started = 1.0 - start_s / situation.step_s
    spare = situation.slack_steps - waits + speed * started - 1.0
    cost = option.score_usd_per_hour * situation.step_s / 3600
    needed_s = seconds_to_finish(option, situation.job_view.job, situation.units, start_s)
    if needed_s <= situation.view.tick_s + 1e-6 and not waits:
        cost = option.score_usd_per_hour * situation.view.tick_s / 3600
    elif spare < -ROUNDING:
        cost = math.inf
    elif needed_s <= situation.step_s:
        # The program would count a whole step, and waiting, by its exact seconds, look cheaper.
        cost = option.score_usd_per_hour * needed_s / 3600
    else:
        # What is waited for costs nothing and leaves the work as it is: fewer steps, less to spare.
        skipped = min(waits, max(0.0, situation.steps - 1 - program.first))
        steps, spare = situation.steps - 1 - skipped, spare + waits - skipped
        cost += program.on_spot(steps, spare, lane, of_age)
    verb = "stay on" if candidate.present else "launch on"
    verb = verb if option.wait_s is None else "wait for"
    where = _named(option.parts) if option.parts else option.pool
    return ValuedAlternative(cost, option.targets, f"{verb} {where}", _estimates(candidate))


def value_waiting(
    situation: ProgramState, program: ValueFunction, candidates: Sequence[InterruptibleCandidate]
) -> ValuedAlternative:
    """Return what it costs to run on nothing for a step, whether that is weighed or not."""
    lane, of_age = _launchable(program, candidates)
    spare = situation.slack_steps - 1.0
    cost = program.waiting(situation.steps - 1, spare, lane, of_age)
    if situation.slack_steps * situation.step_s < situation.view.tick_s - ROUNDING:
        cost = math.inf
    elif spare < 0.0:
        cost -= spare * situation.fallback.score_usd_per_hour * situation.step_s / 3600
    if not any(_tariffs(program)):
        gangs = (situation.fallback, *(candidate.option for candidate in candidates))
        cost = max(cost, min(map(situation.whole_cost, gangs)))
    return ValuedAlternative(cost, (), "wait")


def _safe_choice(
    situation: ProgramState, program: ValueFunction, candidates: Sequence[InterruptibleCandidate]
) -> ValuedAlternative:
    fallback = situation.fallback
    lane, of_age = _launchable(program, candidates)
    present = is_running(situation.job_view, fallback.targets)
    start_s = situation.start_left_s if present else fallback.start_s
    spare = (situation.left_s - situation.work_s - start_s) / situation.step_s
    cost = fallback.score_usd_per_hour * situation.step_s / 3600
    cost += program.on_safe(situation.steps - 1, spare, lane, of_age)
    needed_s = start_s + situation.work_s
    if needed_s <= situation.step_s:
        cost = fallback.score_usd_per_hour * needed_s / 3600
    if not present and len(candidates) > 1 and len({each.option.place for each in candidates}) > 1:
        cost += RESTART_SHARE * fallback.score_usd_per_hour * fallback.start_s / 3600
    verb = "stay on" if present else "go to"
    return ValuedAlternative(cost, fallback.targets, f"{verb} {fallback.pool}")


def _launchable(
    program: ValueFunction, candidates: Sequence[InterruptibleCandidate]
) -> tuple[int | None, int]:
    """The cheapest lane that is up and its class of age, or the class of the least long down."""
    lanes = program.terms.lanes
    up = [i for i, candidate in enumerate(candidates) if candidate.up]
    if not candidates:
        return None, 0
    class_at = candidates[0].rates.class_at
    if not up:
        return None, class_at(min(candidate.age_h for candidate in candidates))
    cheapest = min(up, key=lambda i: lanes[i].cost_of_work)
    return cheapest, class_at(candidates[cheapest].age_h)


def _alternative(choice: ValuedAlternative) -> Alternative:
    if not math.isfinite(choice.cost):
        return Alternative(_named(choice.targets), None, "would miss the deadline")
    return Alternative(_named(choice.targets), choice.cost, choice.estimates)


def _not_weighed(
    weighed: Sequence[ValuedAlternative], candidates: Sequence[InterruptibleCandidate]
) -> Iterator[Alternative]:
    """Waiting where it is out of the question, and gangs whose pools have no capacity now."""
    if all(choice.targets for choice in weighed):
        yield Alternative(_named(()), None, "not weighed here")
    for candidate in candidates:
        if not candidate.up:
            choice = _named(candidate.option.targets)
            yield Alternative(choice, None, f"no capacity; {_estimates(candidate)}")


def _estimates(candidate: InterruptibleCandidate) -> str:
    """What is believed of a pool: how long it has been as it is, and how long it will be."""
    rate = candidate.rates.of(candidate.up)[candidate.rates.class_at(candidate.age_h)]
    state, end = ("up", "goes") if candidate.up else ("away", "comes back")
    return (
        f"{state} for {candidate.age_h:.1f} h, {end} {rate:.2f} times an hour at that age, "
        f"there {candidate.share:.0%} of the time"
    )


def _named(targets: tuple[Target, ...]) -> str:
    return " + ".join(f"{target.nodes} × {target.pool}" for target in targets) or "wait"
