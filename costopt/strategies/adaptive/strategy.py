"""The adaptive strategy: the cheapest expected run that certainly meets the deadline.

Each tick, it compares the alternatives by their expected cost to the end: to stay on or launch each
spot gang, to wait, to stay on or launch the safe gang. The expectations come from the dynamic
program of ``costopt.strategies.adaptive.program`` over lifetimes that are learned pool by pool
(``costopt.market.lifetime``). The program is solved again only when an estimate has moved, a price
by 3 % or a rate by 30 %.

The lifetimes may be those of several scenarios (``LifetimeModel.scenarios``). Each has a program,
and an alternative costs its mean over them: slack that is spent in the belief that spot seldom goes
is gone where it goes often, and then on-demand cannot be left again.

Time is measured on the safe gang that the shield would choose. Slack is the time to the deadline
beyond the work on that gang, saves included; where an interruption may come within the tick, a tick
and the work between two saves are reserved too, as the shield does.

The speed of a job is smoothed (``SmoothedSpeed``): a node that is busy for a moment reports a low
speed, and if each report counted in full, a job would go to on-demand at one and back to spot at
the next, and pay two starts for nothing. So decisions rest on the running mean of the measurements
of the last hours, and on uninterruptible capacity on the lower of that mean and of recent
measurements: the job leaves such capacity only once it has been fast for a while. The shield uses
every report at once, because the deadline does not wait for means.

With ``prices_limits`` jobs that compete for quotas, dollars or kilowatts pay the prices of these
limits in their programs (``costopt.strategies.shared_limits``), from one plan of all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime

from costopt.domain.transfers import region_key
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.market.lifetime import JOINT_PACES, LifetimeModel
from costopt.strategies.adaptive.candidates import (
    MAX_JOINT_STEPS,
    MAX_STEPS,
    InterruptibleCandidate,
    ProgramState,
    candidate_scenarios,
    collect_candidates,
    option_key,
    part_key,
    seconds_at_risk,
)
from costopt.strategies.adaptive.choices import (
    ValuedAlternative,
    alternatives,
    choose,
    explain_choice,
    extra_for_waiting,
    mix_alternatives,
    value_alternatives,
    value_waiting,
)
from costopt.strategies.adaptive.problem import build_problem, has_changed, step_objective_usd
from costopt.strategies.adaptive.program import ProgramCache, ValueFunction
from costopt.strategies.adaptive.tolerance import ToleranceFollower, followed_aim
from costopt.strategies.gang_options import GangOption, gang_options, uninterruptible_options
from costopt.strategies.remaining_time import (
    is_running,
    remaining_startup_s,
    seconds_left,
    seconds_to_finish,
)
from costopt.strategies.shared_limits import SharedLimits
from costopt.strategies.shield import choose_fallback
from costopt.strategies.spread_gangs import spread_options, zone_room
from costopt.strategies.uniform_progress import CapacityMode, current_mode

MAX_SPARE_STEPS = 480
"""Spare steps beyond which more of them are taken to be worth nothing: 80 h of 10 minutes."""

Programs = tuple[dict[str, ValueFunction], ...]
"""By scenario and job."""

MIN_PROBABILITY = 0.05
"""Scenarios that are less likely are not weighed."""


class AdaptiveStrategy:
    """``step_s`` is the program's step at least, ``pools`` how many pools it weighs, one at least.

    ``lifetimes`` is what is known beforehand; by default the prior of the public records.
    """

    def __init__(
        self,
        step_s: float = 600.0,
        pools: float = 6,
        memory_h: float = 72.0,
        lifetimes: LifetimeModel | None = None,
        prices_limits: bool = False,
    ) -> None:
        self.step_s = step_s
        self.pools = max(1, int(pools))
        self.lifetimes = lifetimes or LifetimeModel(memory_h=memory_h)
        self.programs = ProgramCache()
        self.limits = SharedLimits() if prices_limits else None
        self._programs: Programs = tuple({} for _ in JOINT_PACES)
        self._of_another_run: Programs = tuple({} for _ in JOINT_PACES)
        self._compared: Programs = ({}, {})
        self._tolerances = ToleranceFollower(
            self.pools, self._compared_program, self._cheapest_of_another_run
        )
        self._speeds: dict[str, SmoothedSpeed] = {}

    def decide(self, view: View) -> Desired:
        """One decision per job."""
        jobs = {job_view.job.name for job_view in view.jobs}
        for kept in (*self._programs, *self._of_another_run, *self._compared):
            for job in kept.keys() - jobs:
                del kept[job]
        self._tolerances.keep(jobs)
        self._speeds = {job: s for job, s in self._speeds.items() if job in jobs}
        if self.limits is not None:
            self.limits.observe(view)
        return Desired(tuple(self._priced(view, self._believed(jv, view.now)) for jv in view.jobs))

    def _priced(self, view: View, job_view: JobView) -> Decision:
        """Decide at the prices of the limits that the job shares with others, if there are any."""
        limits, name = self.limits, job_view.job.name
        if limits is not None:
            view = limits.priced(view, name)
        decision = self._decide(view, job_view)
        self._tolerances.record(view, job_view, decision)
        return decision if limits is None else replace(decision, plan=limits.plan_of(name))

    def _believed(self, job_view: JobView, now: datetime) -> JobView:
        """The job as fast as it is taken to be."""
        speed = self._speeds.setdefault(job_view.job.name, SmoothedSpeed())
        speed.update(job_view, now)
        on_safe = current_mode(job_view) is CapacityMode.SAFE
        believed = speed.cautious if on_safe else speed.mean
        same = believed == job_view.speed_factor
        return job_view if same else replace(job_view, speed_factor=believed)

    def _decide(self, view: View, job_view: JobView) -> Decision:
        job, all_options = job_view.job, gang_options(view, job_view)
        gangs = [o for o in all_options if not o.pool.capacity_type.is_uninterruptible]
        for option in (o for o in gangs if o.pool.capacity_type.is_interruptible):
            self.lifetimes.observe(
                option_key(job.name, option),
                f"{option.pool.provider}/{option.pool.region}",
                option.free or option.running,
                view.now,
            )
        spreads = self._spreads(view, job_view)
        gangs, all_options = [*gangs, *spreads], (*all_options, *spreads)
        units = job.work.amount - job_view.progress.done_units
        # A flex-start gang that is left would have to be waited for again: no way back to it.
        safes = [
            option
            for option in uninterruptible_options(all_options)
            if option.pool.capacity_type.is_uninterruptible
        ]
        fallback = _fallback(view, job_view, safes, max(units, 0.0))
        if fallback is None or units <= 0:
            return _without_program(job_view, all_options, fallback, units)
        cheapest, usd = self._cheapest(self._programs, view, job_view, gangs, fallback, units)
        followed = self._tolerances.decide(view, job_view, fallback, units, self.lifetimes, usd)
        return followed or cheapest

    def _cheapest(
        self,
        programs: Programs,
        view: View,
        job_view: JobView,
        gangs: list[GangOption],
        fallback: GangOption,
        units: float,
    ) -> tuple[Decision, float]:
        """The decision for the policy's objective, and its expected cost to the end."""
        name = job_view.job.name
        candidates = collect_candidates(job_view, gangs, fallback, self.lifetimes, self.pools)
        most = MAX_STEPS if len(candidates) == 1 else MAX_JOINT_STEPS
        situation = ProgramState(view, job_view, fallback, units, self.step_s, most)
        if not gangs and not step_objective_usd(situation, fallback):
            why = "no spot capacity is allowed: on-demand"
            return Decision(name, fallback.targets, why), situation.whole_cost(fallback)
        *weighed, waiting = self._weigh(programs, name, candidates, situation)
        best = choose(weighed)
        decision = Decision(
            name,
            best.targets,
            explain_choice(best, weighed),
            alternatives=alternatives(weighed, candidates),
            wait_usd=extra_for_waiting(best, waiting),
        )
        return decision, best.cost

    def _cheapest_of_another_run(
        self, view: View, job_view: JobView, fallback: GangOption, units: float
    ) -> tuple[Decision, float]:
        """The same for a run of the job that is not the real one."""
        options = gang_options(view, job_view)
        gangs = [each for each in options if not each.pool.capacity_type.is_uninterruptible]
        return self._cheapest(self._of_another_run, view, job_view, gangs, fallback, units)

    def _spreads(self, view: View, job_view: JobView) -> list[GangOption]:
        """The gangs over several zones, once there was reason for one.

        Not where an aim is followed within a tolerance, whose spending is counted by pools.
        """
        job = job_view.job
        if job.resources.zone_traffic_gib is None or followed_aim(view.policy.objective):
            return []
        known = []
        for option in spread_options(view, job_view):
            key, up = option_key(job.name, option), option.free or option.running
            if up or self.lifetimes.knows(key):
                self.lifetimes.observe(key, f"{region_key(option.pool)} spread", up, view.now)
                known.append(option)
        for pool, room in zone_room(view, job_view).items():
            self.lifetimes.observe(part_key(job.name, pool), region_key(pool), room > 0, view.now)
        return known

    def _weigh(
        self,
        programs: Programs,
        job: str,
        candidates: list[InterruptibleCandidate],
        situation: ProgramState,
    ) -> list[ValuedAlternative]:
        """The alternatives, and as the last one waiting, whether it may be chosen or not.

        Each costs its mean over the scenarios.
        """
        scenarios = [
            (probability, kept, supposed)
            for kept, (probability, supposed) in zip(
                programs, candidate_scenarios(job, candidates, self.lifetimes), strict=False
            )
            if probability >= MIN_PROBABILITY
        ]
        total = sum(probability for probability, _, _ in scenarios)
        return mix_alternatives(
            [
                (
                    probability / total,
                    _with_waiting(situation, self._kept(kept, job, supposed, situation), supposed),
                )
                for probability, kept, supposed in scenarios
            ]
        )

    def _compared_program(
        self,
        job: str,
        candidates: list[InterruptibleCandidate],
        situation: ProgramState,
        priced: bool,
    ) -> ValueFunction:
        return self._kept(self._compared[priced], job, candidates, situation)

    def _kept(
        self,
        kept: dict[str, ValueFunction],
        job: str,
        candidates: list[InterruptibleCandidate],
        situation: ProgramState,
    ) -> ValueFunction:
        """The job's program among these, solved again where its terms have changed."""
        wanted = build_problem(candidates, situation)
        program = kept.get(job)
        steps = situation.steps - 1
        if program is None or not program.contains(steps) or has_changed(program.terms, wanted):
            spare = min(MAX_SPARE_STEPS, max(2, math.ceil(situation.slack_steps) + 2))
            program = kept[job] = self.programs.solved(wanted, steps, spare)
        return program


def _with_waiting(
    situation: ProgramState, program: ValueFunction, candidates: list[InterruptibleCandidate]
) -> list[ValuedAlternative]:
    waiting = value_waiting(situation, program, candidates)
    return [*value_alternatives(situation, program, candidates, waiting), waiting]


def _fallback(
    view: View, job_view: JobView, safes: list[GangOption], units: float
) -> GangOption | None:
    """The shield's, but a safe gang that runs is kept where another would only be as fast.

    It is left where the other does the rest for less, its start included.
    """
    chosen = choose_fallback(view, job_view, safes, units)
    if chosen is not None:
        chosen = _with_room(view, job_view, chosen, safes, units)
    running = next((o for o in safes if is_running(job_view, o.targets)), None)
    if chosen is None or running is None or running.units_per_s < (1 - 1e-9) * chosen.units_per_s:
        return chosen
    here_s = seconds_to_finish(running, job_view.job, units, remaining_startup_s(view, job_view))
    there_s = seconds_to_finish(chosen, job_view.job, units)
    stays = running.score_usd_per_hour * here_s <= chosen.score_usd_per_hour * there_s
    return running if stays and running.nodes == chosen.nodes else chosen


def _with_room(
    view: View, job_view: JobView, chosen: GangOption, safes: list[GangOption], units: float
) -> GangOption:
    """The safe gang, or where it is hardly in time a faster one.

    On the slower one all slack would be gone at once, and spot be left for it.
    """
    left_s, at_risk_s = seconds_left(view, job_view), seconds_at_risk(view, job_view)

    def has_room(option: GangOption) -> bool:
        needed_s = option.start_s + seconds_to_finish(option, job_view.job, units)
        return needed_s + at_risk_s <= left_s

    if has_room(chosen) or is_running(job_view, chosen.targets):
        return chosen
    faster = (o for o in safes if o.units_per_s > chosen.units_per_s and has_room(o))
    return min(faster, key=lambda option: option.score_usd_per_unit, default=chosen)


def _without_program(
    job_view: JobView,
    all_options: tuple[GangOption, ...],
    fallback: GangOption | None,
    units: float,
) -> Decision:
    """Nothing to weigh: no safe capacity to measure slack on, or only the command to end."""
    name = job_view.job.name
    running = next((o for o in all_options if o.running), None)
    if units <= 0 and running is not None:
        return Decision(name, running.targets, "all the work is done; the command has still to end")
    chosen = _keep_or_soonest(all_options) or fallback
    if chosen is None:
        return Decision(name, (), "no capacity available: wait")
    why = "all the work is done; only to end the command" if units <= 0 else "no safe capacity"
    return Decision(name, chosen.targets, f"{why}: {chosen.pool}")


def _keep_or_soonest(all_options: tuple[GangOption, ...]) -> GangOption | None:
    """The spot or flex-start gang that runs, else the cheapest available now or after a wait."""

    def order(option: GangOption) -> tuple[bool, bool, float, str, int]:
        waits, price = option.wait_s is not None, option.score_usd_per_unit
        return not option.running, waits, price, str(option.pool), option.nodes

    free = (o for o in all_options if not o.pool.capacity_type.is_uninterruptible and o.free)
    return min(free, key=order, default=None)


MEMORY_H = 1.0
"""Of the running mean: a speed that stays as it is for so long is believed to two thirds."""


@dataclass(slots=True)
class SmoothedSpeed:
    """Factors on the speed that the job's spec predicts, as ``JobView.speed_factor``.

    ``mean`` is over what was measured, the first report in full; ``cautious`` falls at once
    and rises as slowly as the mean.
    """

    mean: float = 1.0
    cautious: float = 1.0
    _measured_h: float = 0.0
    _seen_at: datetime | None = None

    def update(self, job_view: JobView, now: datetime) -> None:
        """Record the present measurement; a second one at the same instant is ignored."""
        factor = job_view.speed_factor
        if self._seen_at is None:
            measured = factor != 1.0 or job_view.progress.measured_units_per_s is not None
            if measured:
                self.mean = self.cautious = factor
                self._seen_at = now
            return
        apart_h = (now - self._seen_at).total_seconds() / 3600
        if apart_h <= 0:
            return
        self._measured_h = min(MEMORY_H, self._measured_h + apart_h)
        self.mean += -math.expm1(-apart_h / self._measured_h) * (factor - self.mean)
        risen = self.cautious - math.expm1(-apart_h / MEMORY_H) * (factor - self.cautious)
        self.cautious = min(factor, risen, self.mean)
        self._seen_at = now
