"""The cheapest expected run that is surely in time: spot, wait or fall back, by a dynamic program.

Each tick, the alternatives are compared by what they are expected to cost to the end: to stay on
or launch each spot gang, to wait, to stay on or launch the safe gang. The expectations come from
``costopt.strategies.deadline_program`` over lifetimes that are learned pool by pool
(``costopt.market.lifetime``). The program is solved anew only when an estimate has moved, a price
by 3 % or a rate by 20 %.

Time is measured on the safe gang that the shield would go to. Slack is what the deadline leaves
beyond the work on that gang, saves included; where an interruption may come within the tick, a tick
and the work between two saves are kept back too, as the shield does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from costopt.domain.interval import checkpoint_interval_s
from costopt.domain.view import Alternative, Decision, Desired, JobView, Target, View
from costopt.market.lifetime import Lifetimes
from costopt.strategies.cant_be_late import keep_or_cheapest
from costopt.strategies.deadline_program import Program
from costopt.strategies.lanes import Candidate, key, look, moved, terms
from costopt.strategies.option import Option, options, safe
from costopt.strategies.reserve import is_running, seconds_left, seconds_to_finish, start_left_s
from costopt.strategies.shield import choose_fallback, may_pause

MOST_STEPS = 720
"""A run to the deadline is cut into no more steps than this: 5 days of 10 minutes."""

MOST_SPARE = 480
"""Spare steps beyond which more of them are taken to be worth nothing: 80 h of 10 minutes."""

AS_CHEAP = 1.1
"""A pool that costs up to so many times the cheapest is not left for it."""

ROUNDING = 1e-6

EXPECTED_HAZARD_PER_HOUR = 0.39
"""Interruptions per hour of capacity in the public records that the prior is fitted on, 2,247 in
5,832 h; it says how much work there may be between two saves."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """One alternative and what it is expected to cost from now to the end of the job."""

    cost: float
    targets: tuple[Target, ...]
    what: str
    estimates: str = ""


class Adaptive:
    """``step_s`` is the program's step at least, ``pools`` how many pools it weighs, one at least.

    ``lifetimes`` is what is known beforehand; by default the prior of the public records.
    """

    def __init__(
        self,
        step_s: float = 600.0,
        pools: int = 6,
        memory_h: float = 72.0,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.step_s = step_s
        self.pools = max(1, pools)
        self.lifetimes = lifetimes or Lifetimes(memory_h=memory_h)
        self._programs: dict[str, Program] = {}

    def decide(self, view: View) -> Desired:
        """One decision per job."""
        jobs = {job_view.job.name for job_view in view.jobs}
        self._programs = {job: p for job, p in self._programs.items() if job in jobs}
        return Desired(tuple(self._decide(view, jv) for jv in view.jobs))

    def _decide(self, view: View, job_view: JobView) -> Decision:
        job, all_options = job_view.job, options(view, job_view)
        gangs = [o for o in all_options if o.pool.capacity_type.interruptible]
        for option in gangs:
            self.lifetimes.look(
                key(job.name, option),
                f"{option.pool.provider}/{option.pool.region}",
                option.free or option.running,
                view.now,
            )
        units = job.work.amount - job_view.progress.done_units
        fallback = choose_fallback(view, job_view, safe(all_options), max(units, 0.0))
        if fallback is None or units <= 0:
            return _without_program(job_view, all_options, fallback, units)
        if not gangs:
            return Decision(job.name, fallback.targets, "no spot capacity is allowed: on-demand")
        candidates = look(job_view, gangs, fallback, self.lifetimes, self.pools)
        choices = self._choices(view, job_view, candidates, fallback, units)
        best = min(choices, key=lambda choice: choice.cost)
        weighed = (*map(_alternative, choices), *_not_weighed(choices, candidates))
        return Decision(job.name, best.targets, _why(best, choices), alternatives=weighed)

    def _choices(
        self,
        view: View,
        job_view: JobView,
        candidates: list[Candidate],
        fallback: Option,
        units: float,
    ) -> list[_Choice]:
        situation = _Situation(view, job_view, fallback, units, self.step_s)
        program = self._program(job_view.job.name, candidates, situation)
        choices = [
            *_spot_choices(situation, program, candidates),
            _safe_choice(situation, program, candidates),
        ]
        if may_pause(job_view) and not _waits_for_age(candidates):
            choices.append(_wait_choice(situation, program, candidates))
        return choices

    def _program(self, job: str, candidates: list[Candidate], situation: _Situation) -> Program:
        wanted = terms(candidates, situation.fallback, situation.step_s, situation.guard_s)
        program = self._programs.get(job)
        steps = situation.steps - 1
        if program is None or not program.covers(steps) or moved(program.terms, wanted):
            spare = min(MOST_SPARE, max(2, math.ceil(situation.spare) + 2))
            program = Program(wanted, max(1, math.ceil(steps)), spare)
            self._programs[job] = program
        return program


class _Situation:
    """Where a job stands, in steps of its program."""

    def __init__(
        self, view: View, job_view: JobView, fallback: Option, units: float, step_s: float
    ) -> None:
        job = job_view.job
        span_s = (job.deadline_at - job.start_at).total_seconds()
        ticks = max(1, round(step_s / view.tick_s))
        self.view, self.job_view, self.fallback, self.units = view, job_view, fallback, units
        self.step_s = max(ticks * view.tick_s, span_s / MOST_STEPS)
        self.left_s = seconds_left(view, job_view)
        self.work_s = seconds_to_finish(fallback, job, units, 0.0)
        self.start_left_s = start_left_s(view, job_view)
        self.guard_s = fallback.start_s + _at_risk_s(view, job_view)

    @property
    def steps(self) -> float:
        """To the deadline."""
        return self.left_s / self.step_s

    @property
    def spare(self) -> float:
        """Steps that may be spent on waiting or launching before the safe gang must be launched."""
        return (self.left_s - self.work_s - self.guard_s) / self.step_s

    def whole_cost(self, option: Option) -> float:
        """Of a launch of this gang and all the work that is left, if nothing comes between."""
        needed_s = seconds_to_finish(option, self.job_view.job, self.units)
        return option.score_usd_per_hour * needed_s / 3600


def _waits_for_age(candidates: list[Candidate]) -> bool:
    """Several pools, one of the cheapest up: then waiting is not weighed.

    It could pay only where an older pool comes later. That depends on how shortages coincide, of
    which the program knows little: the cents it saw in waiting cost hours of slack.
    """
    prices = [candidate.option.score_usd_per_unit for candidate in candidates]
    enough = AS_CHEAP * min(prices)
    pairs = zip(candidates, prices, strict=True)
    return len(candidates) > 1 and any(each.up and price <= enough for each, price in pairs)


def _spot_choices(
    situation: _Situation, program: Program, candidates: list[Candidate]
) -> list[_Choice]:
    return [
        _spot_choice(situation, program, candidate, lane)
        for lane, candidate in enumerate(candidates)
        if candidate.up
    ]


def _spot_choice(
    situation: _Situation, program: Program, candidate: Candidate, lane: int
) -> _Choice:
    option, terms_ = candidate.option, program.terms
    of_age = candidate.rates.class_at(candidate.age_h)
    start_s = situation.start_left_s if candidate.present else option.start_s
    spare = situation.spare - start_s / situation.step_s + terms_.lanes[lane].speed - 1.0
    cost = option.score_usd_per_hour * situation.step_s / 3600
    needed_s = start_s + situation.work_s / terms_.lanes[lane].speed
    if needed_s <= situation.view.tick_s + 1e-6:
        cost = option.score_usd_per_hour * situation.view.tick_s / 3600
    elif spare < -ROUNDING:
        cost = math.inf
    else:
        cost += program.on_spot(situation.steps - 1, spare, lane, of_age)
    verb = "stay on" if candidate.present else "launch on"
    return _Choice(cost, option.targets, f"{verb} {option.pool}", _estimates(candidate))


def _wait_choice(situation: _Situation, program: Program, candidates: list[Candidate]) -> _Choice:
    lane, of_age = _launchable(program, candidates)
    spare = situation.spare - 1.0
    cost = program.waiting(situation.steps - 1, spare, lane, of_age)
    if situation.spare * situation.step_s < situation.view.tick_s - ROUNDING:
        cost = math.inf
    elif spare < 0.0:
        cost -= spare * program.terms.safe_cost
    gangs = (situation.fallback, *(candidate.option for candidate in candidates))
    return _Choice(max(cost, min(map(situation.whole_cost, gangs))), (), "wait")


def _safe_choice(situation: _Situation, program: Program, candidates: list[Candidate]) -> _Choice:
    fallback = situation.fallback
    lane, of_age = _launchable(program, candidates)
    present = is_running(situation.job_view, fallback.targets)
    start_s = situation.start_left_s if present else fallback.start_s
    spare = (situation.left_s - situation.work_s - start_s) / situation.step_s
    cost = program.terms.safe_cost + program.on_safe(situation.steps - 1, spare, lane, of_age)
    needed_s = start_s + situation.work_s
    if needed_s <= situation.step_s:
        cost = fallback.score_usd_per_hour * needed_s / 3600
    verb = "stay on" if present else "go to"
    return _Choice(cost, fallback.targets, f"{verb} {fallback.pool}")


def _launchable(program: Program, candidates: list[Candidate]) -> tuple[int | None, int]:
    """The cheapest lane that is up and its class of age, or the class of the least long down."""
    lanes = program.terms.lanes
    up = [i for i, candidate in enumerate(candidates) if candidate.up]
    class_at = candidates[0].rates.class_at
    if not up:
        return None, class_at(min(candidate.age_h for candidate in candidates))
    cheapest = min(up, key=lambda i: lanes[i].cost_of_work)
    return cheapest, class_at(candidates[cheapest].age_h)


def _at_risk_s(view: View, job_view: JobView) -> float:
    """Time that an interruption within the tick can cost besides the start of another gang."""
    checkpoint = job_view.job.checkpoint
    if view.firm_s >= view.tick_s - 1e-6 and checkpoint.save_s == 0:
        return 0.0
    interval_s = checkpoint.interval_s or checkpoint_interval_s(
        hazard_per_hour=EXPECTED_HAZARD_PER_HOUR, blocking_save_s=checkpoint.save_s
    )
    return view.tick_s + interval_s


def _without_program(
    job_view: JobView,
    all_options: tuple[Option, ...],
    fallback: Option | None,
    units: float,
) -> Decision:
    """Nothing to weigh: no safe capacity to measure slack on, or only the command to end."""
    name = job_view.job.name
    running = next((o for o in all_options if o.running), None)
    if units <= 0 and running is not None:
        return Decision(name, running.targets, "all the work is done; the command has still to end")
    on_spot = keep_or_cheapest(all_options)
    chosen = on_spot if on_spot is not None else fallback
    if chosen is None:
        return Decision(name, (), "no capacity to be had: wait")
    why = "all the work is done; only to end the command" if units <= 0 else "no safe capacity"
    return Decision(name, chosen.targets, f"{why}: {chosen.pool}")


def _why(best: _Choice, choices: list[_Choice]) -> str:
    others = [c for c in choices if c is not best and math.isfinite(c.cost)]
    others.sort(key=lambda choice: choice.cost)
    beside = ", ".join(f"{c.what} ${c.cost:.2f}" for c in others[:3])
    against = f", against {beside}" if beside else ": nothing else is in time"
    return f"{best.what}: ${best.cost:.2f} expected to the end{against}"


def _alternative(choice: _Choice) -> Alternative:
    if not math.isfinite(choice.cost):
        return Alternative(_named(choice.targets), None, "would miss the deadline")
    return Alternative(_named(choice.targets), choice.cost, choice.estimates)


def _not_weighed(choices: list[_Choice], candidates: list[Candidate]) -> Iterator[Alternative]:
    """Waiting where it is out of the question, and gangs whose pools have no capacity now."""
    if all(choice.targets for choice in choices):
        yield Alternative(_named(()), None, "not weighed here")
    for candidate in candidates:
        if not candidate.up:
            choice = _named(candidate.option.targets)
            yield Alternative(choice, None, f"no capacity; {_estimates(candidate)}")


def _estimates(candidate: Candidate) -> str:
    """What is believed of a pool: how long it has been as it is, and how long it will be."""
    rate = candidate.rates.of(candidate.up)[candidate.rates.class_at(candidate.age_h)]
    state, end = ("up", "goes") if candidate.up else ("away", "comes back")
    return (
        f"{state} for {candidate.age_h:.1f} h, {end} {rate:.2f} times an hour at that age, "
        f"there {candidate.share:.0%} of the time"
    )


def _named(targets: tuple[Target, ...]) -> str:
    return " + ".join(f"{target.nodes} × {target.pool}" for target in targets) or "wait"
