"""Following the aims of ``Objective.then`` tick by tick: least kWh or CO2e within the tolerance.

Decisions weigh the aim at a price w, in the objective's dollars per kWh or per gram. Let V(w) be
what the rest of the run is expected to cost then, the aim at its price included, and B what it may
cost in the objective alone: V(0), that of the cheapest run, and the rest of the tolerance. The
price is the one that maximizes (V(w) − B) / w, the Lagrangian dual of the ε-constraint, so that the
expected cost of the run that follows it is B; the maximum is the least of the aim that B buys, and
V's slope at a low price what the cheapest run takes of it. V comes from programs of an hour's step.

The tolerance is a share of what the cheapest run costs on this market (``CheapestRun``). The larger
of two sums is taken off it:

- what decisions for the aim were expected to cost, each beyond the best one if the cheapest run
  follows on both. In expectation the sum is the whole difference to the cheapest run (Kakade and
  Langford 2002, lemma 6.1). It keeps what luck saved from being spent on the aim.
- what the run has spent and its end is expected to cost, beyond the same of the cheapest run. So
  bad luck on a gang that was chosen for the aim counts, as do estimates that were too low; a market
  that is scarcer than expected makes both runs costlier, and takes nothing of the tolerance.

Once nothing is unspent, the cheapest run is followed.

Only the first aim in kWh or CO2e counts here; plans follow them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.market import Pool
from costopt.domain.policy import Objective, ObjectiveTerm
from costopt.domain.view import Decision, JobView, Target, View
from costopt.market.lifetime import LifetimeModel
from costopt.strategies.adaptive.candidates import (
    InterruptibleCandidate,
    ProgramState,
    candidate_of,
    collect_candidates,
)
from costopt.strategies.adaptive.cheapest_run import CheapestRun
from costopt.strategies.adaptive.choices import (
    ValuedAlternative,
    alternatives,
    explain_choice,
    value_alternatives,
    value_waiting,
)
from costopt.strategies.adaptive.problem import build_problem
from costopt.strategies.adaptive.program import ValueFunction
from costopt.strategies.gang_options import (
    GangOption,
    gang_options,
    with_best_cap,
    with_power_caps,
    without_power_caps,
)
from costopt.strategies.remaining_time import is_running, seconds_to_finish
from costopt.strategies.shield import may_pause

SEARCH_STEP_S, STEP_S = 3600.0, 1800.0
"""The least step of the programs with which prices are searched, and of those that decide."""

MIN_WORK_STEPS = 6
"""Shorter jobs have shorter steps: over fewer, a program does not see what a mix of pools costs."""

SEARCH_EVERY, SEARCHES = timedelta(hours=6), 12
"""How long a price is kept, at least and as a part of the time that was left when it was found: the
rest of the tolerance and the forecasts have moved little by then."""

WEIGHTS = tuple(2.0 ** (power / 2) for power in range(-18, 1))
"""Prices that are tried: the aim of the safe gang's work counts so many times its dollars. At more,
hours of slack go for a per cent of the aim."""

SHORTAGE_SHARE, SHORTAGE_S = 0.25, 6 * 3600.0
"""Of the time that the work left takes, and at least: slack of so much is kept for shortages, and
not waited away for the aim. Pools of the public records have capacity for four fifths of the time
or less, and one shortage in twenty lasts for more than six hours."""

MIN_SAVING = 0.02
"""Expected savings of a smaller share of the aim are within the error of the estimates, and are not
paid for."""

PER_UNIT = {
    ObjectiveTerm.KWH: Objective(usd=0.0, usd_per_kwh=1.0),
    ObjectiveTerm.CO2E: Objective(usd=0.0, usd_per_tonne_co2e=1e6),
}
"""The aims that are followed, each at a dollar per kWh or gram."""

KEPT_STEPS = 2

Solve = Callable[[str, list[InterruptibleCandidate], ProgramState, bool], ValueFunction]
"""The program of a job for these candidates, with the aim at a price or without."""

Cheapest = Callable[[View, JobView, GangOption, float], tuple[Decision, float]]
"""What the cheapest run would do with so many units left, and its expected cost to the end."""


def followed_aim(objective: Objective) -> ObjectiveTerm | None:
    """Return the aim that is followed within the tolerance, None where there is none."""
    aims = (aim for aim in objective.then if aim in PER_UNIT)
    return next(aims, None) if objective.tolerance > 0 else None


@dataclass(slots=True)
class _Allowance:
    """What a job may cost beyond the cheapest run, in the objective's dollars, and the price.

    ``extra_usd`` is what decisions for the aim were expected to cost. ``own_usd`` and
    ``cheapest_usd`` are what the run and the cheapest one spent and their ends should cost.
    """

    tolerance: float
    cheapest: CheapestRun
    seen_at: datetime
    search_at: datetime
    weight: float = 0.0
    spent_usd: float = 0.0
    extra_usd: float = 0.0
    own_usd: float = 0.0
    cheapest_usd: float = 0.0
    decided_usd_per_hour: float = 0.0
    leaving_usd: float = 0.0
    generation: int = 0

    @property
    def unspent_usd(self) -> float:
        """Return what may still be spent on the aim."""
        overspent_usd = max(self.extra_usd, self.own_usd - self.cheapest_usd)
        return self.tolerance * self.cheapest_usd - overspent_usd

    def spend(self, job_view: JobView, usd_per_hour: float, now: datetime) -> None:
        """Count what ran since the last tick, a gang that was lost or left since then included."""
        generation = job_view.progress.generation
        if not job_view.nodes and generation != self.generation:
            usd_per_hour = self.decided_usd_per_hour
        self.generation = generation if not job_view.nodes else -1
        self.spent_usd += usd_per_hour * (now - self.seen_at).total_seconds() / 3600
        self.spent_usd += self.leaving_usd
        self.seen_at = now


@dataclass(frozen=True, slots=True)
class _Run:
    """A job at a tick: what is weighed, and the safe gang on which its time is measured."""

    view: View
    job_view: JobView
    fallback: GangOption
    units: float
    aim: ObjectiveTerm
    lifetimes: LifetimeModel

    def priced(self, weight: float) -> _Run:
        """The same with the aim at a price; offers whose figure is unknown are left out."""
        if not weight:
            return self
        view, policy = self.view, self.view.policy
        objective = policy.objective.plus(PER_UNIT[self.aim], weight)
        offers = view.offers
        if self.aim is ObjectiveTerm.CO2E:
            offers = tuple(offer for offer in offers if _knows_carbon(view, offer.pool))
        priced = replace(view, policy=replace(policy, objective=objective), offers=offers)
        found = _find(gang_options(priced, self.job_view), self.fallback)
        return replace(self, view=priced, fallback=found or self.fallback)

    def gangs(self, *, greener: bool) -> list[GangOption]:
        """The gangs besides the safe one; ``greener`` adds safe capacity and power limits."""
        job = self.job_view.job
        options = [
            each
            for each in gang_options(self.view, self.job_view)
            if not each.pool.capacity_type.is_uninterruptible or (greener and each.lasting)
        ]
        if greener and self.view.policy.limits.power_caps:
            options = [with_best_cap(self.view, job, each) for each in options]
        return [each for each in options if each.targets != self.fallback.targets]


class ToleranceFollower:
    """The unspent tolerance of jobs, and the decisions that it allows."""

    def __init__(self, pools: int, solve: Solve, cheapest: Cheapest) -> None:
        self._pools = pools
        self._solve = solve
        self._cheapest = cheapest
        self._allowances: dict[str, _Allowance] = {}

    def keep(self, jobs: set[str]) -> None:
        """Forget all other jobs."""
        self._allowances = {job: a for job, a in self._allowances.items() if job in jobs}

    def decide(
        self,
        view: View,
        job_view: JobView,
        fallback: GangOption,
        units: float,
        lifetimes: LifetimeModel,
        cheapest_usd: float,
    ) -> Decision | None:
        """Return the decision for the aim; None where the cheapest run is to be followed.

        ``cheapest_usd`` is what that is expected to cost from now on.
        """
        aim = followed_aim(view.policy.objective)
        if aim is None:
            return None
        run = _Run(view, job_view, fallback, units, aim, lifetimes)
        job, allowance = job_view.job.name, self._allowances.get(job_view.job.name)
        fresh = allowance is None or allowance.seen_at < view.now
        if allowance is None:
            cheapest = CheapestRun(job_view, view.now)
            allowance = _Allowance(view.policy.objective.tolerance, cheapest, view.now, view.now)
            self._allowances[job] = allowance
        if fresh:
            self._compare(run, allowance, cheapest_usd)
        self._search(run, allowance)
        # In the last tick another gang would hold its nodes for one more.
        ends = seconds_to_finish(fallback, job_view.job, units, 0.0) <= view.tick_s
        if ends or not allowance.weight:
            return None
        priced = run.priced(allowance.weight)
        wanted = self._candidates(priced, greener=True)
        situation = _state(priced, STEP_S)
        program = self._solve(job, wanted, situation, True)
        gangs = [each for each in value_alternatives(situation, program, wanted) if each.targets]
        weighed = [*gangs, *_waiting(situation, program, wanted)]
        best = _choose(priced, weighed, [*(each.option for each in wanted), priced.fallback])
        extra_usd = self._extra(run, best, [each.option for each in wanted])
        if not is_running(job_view, without_power_caps(best.targets)):
            extra_usd += _leaving_usd(view, job_view)
        if extra_usd > allowance.unspent_usd:
            return None
        if fresh:
            allowance.extra_usd += extra_usd
        why = f"{explain_choice(best, weighed)}; {_price(aim, allowance.weight)}"
        return Decision(job, best.targets, why, alternatives=alternatives(weighed, wanted))

    def record(self, view: View, job_view: JobView, decision: Decision) -> None:
        """Note what the job's decision costs until the next tick."""
        allowance = self._allowances.get(decision.job)
        if allowance is not None:
            targets = without_power_caps(decision.targets)
            options = gang_options(view, job_view)
            gang = next((each for each in options if each.targets == targets), None)
            stays = gang is not None and is_running(job_view, gang.targets)
            allowance.leaving_usd = 0.0 if stays else _leaving_usd(view, job_view)
            allowance.decided_usd_per_hour = 0.0 if gang is None else gang.score_usd_per_hour

    def _compare(self, run: _Run, allowance: _Allowance, cheapest_usd: float) -> None:
        """Go on to now with what the run and the cheapest run cost."""
        view, cheapest = run.view, allowance.cheapest
        allowance.spend(run.job_view, _usd_per_hour(view, run.job_view), view.now)
        allowance.own_usd = allowance.spent_usd + cheapest_usd
        cheapest.advance(view, run.job_view)
        allowance.cheapest_usd = cheapest.spent_usd
        if cheapest.units > 0:
            options = gang_options(view, cheapest.job_view)
            fallback = _find(options, run.fallback) or run.fallback
            decision, rest_usd = self._cheapest(view, cheapest.job_view, fallback, cheapest.units)
            allowance.cheapest_usd += rest_usd
            cheapest.follow(view, decision.targets)

    def _search(self, run: _Run, allowance: _Allowance) -> None:
        """Find the price again where it is old; there is none where nothing may be spent."""
        now = run.view.now
        if now < allowance.search_at:
            return
        left = run.job_view.job.until_at - now
        allowance.search_at = now + max(SEARCH_EVERY, left / SEARCHES)
        cheapest_usd = self._value(run, 0.0)
        unspent_usd = allowance.unspent_usd
        aim_per_hour = run.priced(1.0).fallback.score_usd_per_hour - run.fallback.score_usd_per_hour
        if not (math.isfinite(cheapest_usd) and unspent_usd > 0 and aim_per_hour > 0):
            allowance.weight = 0.0
            return
        unit = run.fallback.score_usd_per_hour / aim_per_hour
        limit_usd, found = cheapest_usd + unspent_usd, dict[int, float]()

        def dual(index: int) -> float:
            if not 0 <= index < len(WEIGHTS):
                return -math.inf
            if index not in found:
                weight = WEIGHTS[index] * unit
                found[index] = (self._value(run, weight) - limit_usd) / weight
            return found[index]

        present = allowance.weight / unit or WEIGHTS[len(WEIGHTS) // 2]
        place = min(range(len(WEIGHTS)), key=lambda i: abs(WEIGHTS[i] - present))
        step = 2 if allowance.weight else 4
        while step:
            best = max((place, place - step, place + step), key=dual)
            place, step = (best, step) if best != place else (place, step // 2)
        low, high = WEIGHTS[0] * unit, WEIGHTS[2] * unit
        of_cheapest = (self._value(run, high) - self._value(run, low)) / (high - low)
        saves = math.isfinite(of_cheapest) and dual(place) < (1.0 - MIN_SAVING) * of_cheapest
        allowance.weight = WEIGHTS[place] * unit if saves else 0.0

    def _value(self, run: _Run, weight: float) -> float:
        """What the rest of the run is expected to cost with the aim at this price."""
        priced = run.priced(weight)
        candidates = self._candidates(priced, greener=weight > 0)
        situation = _state(priced, SEARCH_STEP_S)
        terms = build_problem(candidates, situation)
        spare = max(2, math.ceil(situation.slack_steps) + 2)
        steps = max(1, math.ceil(situation.steps - 1))
        program = ValueFunction(terms, steps, spare, KEPT_STEPS)
        return min(each.cost for each in value_alternatives(situation, program, candidates))

    def _extra(self, run: _Run, chosen: ValuedAlternative, wanted: Iterable[GangOption]) -> float:
        """How much more than the best choice of the cheapest run one costs until the next tick."""
        plain = _scored(run, (c.option for c in self._candidates(run, greener=False)))
        gangs = {**plain, **_scored(run, wanted)}
        candidates = [candidate_of(run.job_view, each, run.lifetimes) for each in gangs.values()]
        situation = _state(run, STEP_S)
        program = self._solve(run.job_view.job.name, candidates, situation, False)
        weighed = value_alternatives(situation, program, candidates)
        least = min(weighed, key=lambda choice: choice.cost)
        gangs[run.fallback.targets] = run.fallback
        best, targets = gangs.get(least.targets), without_power_caps(chosen.targets)
        if targets:
            costs = {each.targets: each.cost for each in weighed}
            extra_usd = max(0.0, costs.get(targets, math.inf) - least.cost)
            return _extra_in_tick(run, gangs[targets], chosen, best, extra_usd)
        extra_usd = max(0.0, value_waiting(situation, program, candidates).cost - least.cost)
        at_once_usd = 0.0
        if best is not None and is_running(run.job_view, best.targets):
            at_once_usd = min(extra_usd, _start_usd(best))
        share = min(1.0, run.view.tick_s / situation.step_s)
        return at_once_usd + share * (extra_usd - at_once_usd)

    def _candidates(self, run: _Run, *, greener: bool) -> list[InterruptibleCandidate]:
        gangs = run.gangs(greener=greener)
        return collect_candidates(run.job_view, gangs, run.fallback, run.lifetimes, self._pools)


def _waiting(
    situation: ProgramState, program: ValueFunction, candidates: Sequence[InterruptibleCandidate]
) -> Iterator[ValuedAlternative]:
    """Waiting for a cleaner hour or pool, where the job may and slack for shortages is left.

    Unlike for dollars it is weighed however many pools are up: the tolerance limits what it costs.
    """
    spare_s = situation.slack_steps * situation.step_s
    kept_s = max(SHORTAGE_S, SHORTAGE_SHARE * situation.work_s)
    if may_pause(situation.job_view) and spare_s >= kept_s:
        yield value_waiting(situation, program, candidates)


def _choose(
    run: _Run, weighed: Sequence[ValuedAlternative], options: Sequence[GangOption]
) -> ValuedAlternative:
    """The best alternative; a gang that could be launched where waiting saves less than its start.

    What is up may be gone later, and the program takes that for less likely than it is.
    """
    leave_usd = _leaving_usd(run.view, run.job_view)

    def cost(choice: ValuedAlternative) -> float:
        stays = is_running(run.job_view, without_power_caps(choice.targets))
        return choice.cost if stays else choice.cost + leave_usd

    best = min(weighed, key=cost)
    if best.targets or run.job_view.nodes:
        return best
    gang = min((choice for choice in weighed if choice.targets), key=cost)
    option = next(each for each in options if each.targets == gang.targets)
    return gang if gang.cost - best.cost < _start_usd(option) else best


def _state(run: _Run, step_s: float) -> ProgramState:
    job = run.job_view.job
    whole_s = seconds_to_finish(run.fallback, job, job.work.amount, 0.0)
    step_s = min(step_s, whole_s / MIN_WORK_STEPS)
    view, job_view = run.view, run.job_view
    tick_s = view.tick_s
    return ProgramState(view, job_view, run.fallback, run.units, step_s, leave_s=tick_s)


def _scored(run: _Run, gangs: Iterable[GangOption]) -> dict[tuple[Target, ...], GangOption]:
    """The same gangs, uncapped, by the objective of the run, in a fixed order."""
    options = gang_options(run.view, run.job_view)
    found = [own for each in gangs if (own := _find(options, each)) is not None]
    return {each.targets: each for each in sorted(found, key=lambda o: str(o.targets))}


def _start_usd(option: GangOption) -> float:
    return option.score_usd_per_hour * option.start_s / 3600


def _extra_in_tick(
    run: _Run,
    option: GangOption,
    chosen: ValuedAlternative,
    best: GangOption | None,
    extra_usd: float,
) -> float:
    """What a gang costs beyond the best choice until the next tick, of ``extra_usd`` in all.

    The program takes it that a job stays on a spot gang until that is lost, so a tick has its share
    of what is extra in a run to the end, at least the price of its work beyond that on the best
    gang. The start of another gang is paid at once; what a power limit leaves undone, later.
    """
    job_view, tick_h = run.job_view, run.view.tick_s / 3600
    launches = not is_running(job_view, option.targets)
    at_once_usd = min(extra_usd, _start_usd(option)) if launches else 0.0
    ends_s = seconds_to_finish(option, job_view.job, run.units, 0.0)
    rest_usd = (extra_usd - at_once_usd) * min(1.0, run.view.tick_s / max(ends_s, STEP_S))
    if best is not None:
        at_best = best.score_usd_per_hour * option.units_per_s / best.units_per_s
        rest_usd = max(rest_usd, (option.score_usd_per_hour - at_best) * tick_h)
    capped = with_power_caps(run.view, option, chosen.targets)
    undone = 1.0 - capped.units_per_s / option.units_per_s
    return at_once_usd + rest_usd + undone * option.score_usd_per_hour * tick_h


def _usd_per_hour(view: View, job_view: JobView) -> float:
    """Of the objective, by the nodes that live."""
    options = gang_options(view, job_view)
    here = (o for o in options if is_running(job_view, (Target(o.pool, o.nodes),)))
    return sum(option.score_usd_per_hour for option in here)


def _leaving_usd(view: View, job_view: JobView) -> float:
    """Of the nodes that live, for the tick in which they save and are left."""
    return _usd_per_hour(view, job_view) * view.tick_s / 3600


def _find(options: Sequence[GangOption], like: GangOption) -> GangOption | None:
    """The option of the same pool and size."""
    return next((o for o in options if (o.pool, o.nodes) == (like.pool, like.nodes)), None)


def _knows_carbon(view: View, pool: Pool) -> bool:
    power = view.powers.get(pool)
    annual = None if power is None else power.gco2e_per_kwh
    return annual is not None or f"{pool.provider}/{pool.region}" in view.carbon_forecasts


def _price(aim: ObjectiveTerm, weight: float) -> str:
    """The price in words."""
    if aim is ObjectiveTerm.KWH:
        return f"the tolerance buys kWh at ${weight:.3g}"
    return f"the tolerance buys CO2e at ${weight * 1e6:.3g} a tonne"
