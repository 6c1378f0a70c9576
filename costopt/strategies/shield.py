"""The shield: the deadline guarantee that every strategy shares.

A decision for spot, for flex-start or for waiting is followed only if, after the tick for which it
holds, the rest of the job can still be finished in time on uninterruptible capacity:

    w′ / v + d ≤ D − (t + tick) − reserve

or the job ends, in time, within the tick. w′ is the work left after the tick at worst, v the speed
of the cheapest safe gang that is still in time now, d its start, and what the last save of the gang
before takes beyond the start-up of nodes. At worst means:
the tick adds nothing and unsaved work is lost, unless what runs is known to survive the tick
(``view.firm_s``) and a save takes no time; then its progress counts. On a recorded market this is
the exact rule of the "Can't Be Late" benchmark (NSDI'24), where it costs nothing. Since the safe
gang is the cheapest one still in time, waiting never silently escalates to a costlier one.

What a flex-start launch waits for may never come, so a tick on it adds nothing. Once it runs it
is not interrupted: until shortly before its end it is as safe as on-demand.

The policy's reserve is what safe capacity may be late by. The deadline holds on every market where

    m + k · r + s ≤ reserve

m is the longest time at a stretch in which no safe pool in time has room, k how many launches on
safe capacity are refused, though their offers had room, before one that is in time is not, r the
time until the next is tried, and s by how much starts take longer than the job says. r is a tick,
for the engine asks again for the only safe capacity at every tick; where another pool, too slow,
has room meanwhile, r is the engine's cooldown, in whole ticks. s is the start on safe capacity, and
on a recorded market, where the work that a gang does within the tick counts, that of the gang
before it as well. Once safe capacity runs, its delays are behind it: it is kept while it ends by
the deadline itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.plan import COOLDOWN
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.strategies.gang_options import (
    GangOption,
    gang_options,
    uninterruptible_options,
    with_power_caps,
    without_power_caps,
)
from costopt.strategies.patience import with_deadlines
from costopt.strategies.remaining_time import (
    is_running,
    remaining_startup_s,
    seconds_left,
    seconds_to_finish,
)
from costopt.strategies.spread_gangs import spread_of
from costopt.strategies.turns import SafeRun, with_turns

NO_PAUSE = "no_pause"
SHIELD = "shield"
ROUNDING_S = 1e-6


class ShieldedStrategy:
    """A strategy whose decisions are overruled where they would endanger the deadline.

    Jobs without a deadline get that of ``with_deadlines``, unless the strategy ``plans_open_ended``
    jobs itself: then nothing is to be kept, and its decision stands.
    """

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner
        self.starts_between_ticks: bool = getattr(inner, "starts_between_ticks", False)

    def decide(self, view: View) -> Desired:
        """Return the inner strategy's decisions, each checked by the shield."""
        if not getattr(self.inner, "plans_open_ended", False):
            view = with_deadlines(view)
            if len(view.jobs) > 1 and view.account.limits:
                view = with_turns(view, _safe_runs(view))
        desired = self.inner.decide(view)
        by_job = {decision.job: decision for decision in desired.decisions}
        return Desired(
            tuple(
                by_job[jv.job.name]
                if jv.job.deadline_at is None
                else apply_shield(view, jv, by_job[jv.job.name])
                for jv in view.jobs
                if jv.job.name in by_job
            )
        )


def _safe_runs(view: View) -> Iterator[SafeRun]:
    """Yield what each job would need on safe capacity from now on."""
    for job_view in view.jobs:
        units_left = _worst_units_now(view, job_view)
        candidates = uninterruptible_options(gang_options(view, job_view))
        gang = choose_fallback(view, job_view, candidates, units_left)
        if gang is not None:
            needed_s = _seconds_from_now(view, job_view, gang, units_left)
            yield SafeRun(job_view, gang, needed_s, seconds_left(view, job_view))


def apply_shield(view: View, job_view: JobView, decision: Decision) -> Decision:
    """Return the decision, or a safe one where following it for a tick might miss the deadline."""
    return _cooled(view, job_view, _shield(view, job_view, decision))


def _shield(view: View, job_view: JobView, decision: Decision) -> Decision:
    all_options = gang_options(view, job_view)
    candidates = uninterruptible_options(all_options)
    units_left = _worst_units_now(view, job_view)
    fallback = choose_fallback(view, job_view, candidates, units_left)
    if fallback is None:
        return decision
    left_s = seconds_left(view, job_view)
    slack_s = left_s - _seconds_from_now(view, job_view, fallback, units_left)
    if _is_safe(view, job_view, decision, candidates) or _is_in_time(view, job_view, decision):
        return _with_slack(decision, slack_s)
    if decision.targets and not _is_shaky(decision):
        return _replace_slow(decision, fallback, slack_s, view.policy.risk.reserve_s)
    waits_too_long = not decision.targets and not may_pause(job_view)
    # A flex-start gang that is left cannot be gone back to.
    firm = [option for option in candidates if option.pool.capacity_type.is_uninterruptible]
    way_out = choose_fallback(view, job_view, firm, units_left)
    chosen = _gang_of(view, job_view, decision, all_options)
    ways_out = [] if way_out is None else [way_out, *_as_fast(chosen, way_out, firm)]
    holds = any(_holds(view, job_view, decision, chosen, each) for each in ways_out)
    if not waits_too_long and holds:
        return _with_slack(decision, slack_s)
    rule = NO_PAUSE if waits_too_long and slack_s > view.tick_s else SHIELD
    return Decision(
        job=decision.job,
        targets=fallback.targets,
        reason=_why(decision, fallback, slack_s, rule),
        rule=rule,
        slack_s=slack_s,
        alternatives=decision.alternatives,
        plan=decision.plan,
    )


def _as_fast(
    chosen: GangOption | None, way_out: GangOption, firm: list[GangOption]
) -> list[GangOption]:
    """Return the gangs that are faster than the way out, up to the one that is chosen.

    As work is done slower gangs come to be in time, with no slack: not a reason to leave spot.
    """
    if chosen is None:
        return []
    most = chosen.units_per_s * (1 + 1e-9)
    return [option for option in firm if way_out.units_per_s < option.units_per_s <= most]


def _cooled(view: View, job_view: JobView, decision: Decision) -> Decision:
    """Says so where a pool with cheaper work has room and is left alone for a while."""
    why = {each.pool: each.reason for each in view.rejections if each.code == COOLDOWN}
    if decision.rule is not None or not why or is_running(job_view, decision.targets):
        return decision
    all_options = gang_options(view, job_view)
    chosen = [o for o in all_options if o.targets == without_power_caps(decision.targets)]
    most = min((o.score_usd_per_unit for o in chosen), default=math.inf)
    cheaper = [o for o in all_options if o.pool in why and o.score_usd_per_unit < most]
    if not cheaper or (decision.targets and not chosen):
        return decision
    pool = min(cheaper, key=lambda option: option.score_usd_per_unit).pool
    return replace(decision, rule=COOLDOWN, reason=f"{decision.reason}; {pool} {why[pool]}")


def slack_s(view: View, job_view: JobView) -> float | None:
    """Return the seconds left over if the job went to its safest capacity now; None without any."""
    units_left = _worst_units_now(view, job_view)
    fallback = choose_fallback(
        view, job_view, uninterruptible_options(gang_options(view, job_view)), units_left
    )
    if fallback is None:
        return None
    needed_s = _seconds_from_now(view, job_view, fallback, units_left)
    return seconds_left(view, job_view) - needed_s


def may_pause(job_view: JobView) -> bool:
    """Return whether the job may wait for capacity now.

    A phase that may not pause can still be begun late.
    """
    job, done_units = job_view.job, job_view.progress.done_units
    before = job.phase_at(done_units - 2e-9 * job.work.amount)
    phase = job.phase_at(done_units)
    return phase.may_pause or done_units <= 0 or before is not phase


def choose_fallback(
    view: View, job_view: JobView, candidates: list[GangOption], units_left: float
) -> GangOption | None:
    """Return the cheapest safe gang in time now, else one that runs and ends in the reserve's time.

    Where there is neither, it is the one that is least late.
    """
    if not candidates:
        return None
    left_s = seconds_left(view, job_view)

    def seconds(option: GangOption) -> float:
        return _seconds_from_now(view, job_view, option, units_left)

    in_time = next((o for o in candidates if seconds(o) <= left_s + ROUNDING_S), None)
    if in_time is not None:
        return in_time
    running = next((o for o in candidates if is_running(job_view, o.targets)), None)
    if running is not None:
        # What it has done counts, saved or not: it is not interrupted.
        undone = min(units_left, job_view.job.work.amount - job_view.progress.done_units)
        ends_s = _seconds_from_now(view, job_view, running, undone)
        if ends_s <= left_s + view.policy.risk.reserve_s + ROUNDING_S:
            return running
    return min(candidates, key=seconds)


def _seconds_from_now(view: View, job_view: JobView, option: GangOption, units: float) -> float:
    """Seconds until this gang, which may run already, has done ``units``."""
    if is_running(job_view, option.targets):
        return seconds_to_finish(option, job_view.job, units, remaining_startup_s(view, job_view))
    leave_s = _leave_s(job_view.job) if job_view.nodes else 0.0
    return leave_s + seconds_to_finish(option, job_view.job, units)


def _leave_s(job: Job) -> float:
    """What the last save of the gang before adds to a start: it is done while nodes start up."""
    return max(0.0, job.checkpoint.durable_s - job.startup_s)


def _worst_units_now(view: View, job_view: JobView) -> float:
    progress = job_view.progress
    kept = progress.done_units if _is_firm(view, job_view) else progress.saved_units
    return max(0.0, job_view.job.work.amount - kept)


def _is_firm(view: View, job_view: JobView) -> bool:
    """Whether the progress of the tick is certain; that of an array's tasks counts at their end."""
    job = job_view.job
    saves_at_once = job.checkpoint.save_s == 0 and job.array is None
    return view.uninterruptible_s >= view.tick_s - ROUNDING_S and saves_at_once


def _is_shaky(decision: Decision) -> bool:
    return any(not t.pool.capacity_type.is_uninterruptible for t in decision.targets)


def _is_safe(
    view: View, job_view: JobView, decision: Decision, candidates: list[GangOption]
) -> bool:
    """Whether the decision itself is a safe gang that ends in time."""
    option = _like(decision, candidates)
    if option is None:
        return False
    if is_running(job_view, decision.targets):
        units = job_view.job.work.amount - job_view.progress.done_units
    else:
        units = _worst_units_now(view, job_view)
    running = is_running(job_view, decision.targets)
    start_s = remaining_startup_s(view, job_view) if running else None
    capped = with_power_caps(view, option, decision.targets)
    needed_s = seconds_to_finish(capped, job_view.job, units, start_s)
    return needed_s <= seconds_left(view, job_view) + ROUNDING_S


def _is_in_time(view: View, job_view: JobView, decision: Decision) -> bool:
    """Whether a gang over several nodes of a cluster, each a pool, ends in time."""
    if len(decision.targets) < 2 or _is_shaky(decision):
        return False
    job, gpus = job_view.job, 0
    for target in decision.targets:
        gpus += target.nodes * view.machines[target.pool].gpu_count
    machine = view.machines[decision.targets[0].pool]
    speed = job.gpus_units_per_s(machine, gpus, job.phase_at(job_view.progress.done_units))
    if speed is None:
        return False
    running = is_running(job_view, decision.targets)
    start_s = remaining_startup_s(view, job_view) if running else job.overhead_s
    kept = job_view.progress.done_units if running else job_view.progress.saved_units
    needed_s = (job.work.amount - kept) / (speed.low * job_view.speed_factor)
    return start_s + needed_s + job.checkpoint.save_s <= seconds_left(view, job_view)


def _like(decision: Decision, candidates: list[GangOption]) -> GangOption | None:
    """The safe gang that the decision is, or that is as fast as its spread over zones, uncapped."""
    wanted = without_power_caps(decision.targets)
    same = next((o for o in candidates if o.targets == wanted), None)
    machines = {_machine(target.pool) for target in decision.targets}
    if same is not None or len(machines) != 1 or _is_shaky(decision):
        return same
    nodes = sum(target.nodes for target in decision.targets)
    return next((o for o in candidates if o.nodes == nodes and _machine(o.pool) in machines), None)


def _machine(pool: Pool) -> tuple[str, str, str]:
    return pool.provider, pool.region, pool.instance_type


def _replace_slow(
    decision: Decision, fallback: GangOption, slack_s: float, reserve_s: float
) -> Decision:
    """A safe gang that is too slow gives way to a faster one, unless all are late anyway."""
    if slack_s + reserve_s < 0 or fallback.targets == decision.targets:
        return _with_slack(decision, slack_s)
    return Decision(
        job=decision.job,
        targets=fallback.targets,
        reason=_why(decision, fallback, slack_s, SHIELD),
        rule=SHIELD,
        slack_s=slack_s,
        alternatives=decision.alternatives,
    )


def _gang_of(
    view: View, job_view: JobView, decision: Decision, all_options: tuple[GangOption, ...]
) -> GangOption | None:
    """The gang that the decision is for, uncapped; None where it is to wait."""
    wanted = without_power_caps(decision.targets)
    chosen = next((o for o in all_options if o.targets == wanted), None)
    return chosen or spread_of(view, job_view, wanted)


def _holds(
    view: View,
    job_view: JobView,
    decision: Decision,
    chosen: GangOption | None,
    fallback: GangOption,
) -> bool:
    """Whether the job can follow the decision, for ``chosen``, a tick and still be in time."""
    job, left_s = job_view.job, seconds_left(view, job_view)
    if chosen is None or chosen.wait_s is not None or not _is_firm(view, job_view):
        units_after = _worst_units_now(view, job_view)
    else:
        running = is_running(job_view, decision.targets)
        start_s = remaining_startup_s(view, job_view) if running else chosen.start_s
        units = job.work.amount - job_view.progress.done_units
        chosen = with_power_caps(view, chosen, decision.targets)
        saves = chosen.checkpoint or job.checkpoint
        ends_s = start_s + units / chosen.units_per_s + saves.durable_s
        if ends_s <= view.tick_s + ROUNDING_S:
            return ends_s <= left_s + ROUNDING_S
        units_after = units - max(0.0, view.tick_s - start_s) * chosen.units_per_s
    leave_s = _leave_s(job) if decision.targets or job_view.nodes else 0.0
    needed_s = leave_s + seconds_to_finish(fallback, job, units_after)
    return needed_s <= left_s - view.tick_s + ROUNDING_S


def _with_slack(decision: Decision, slack_s: float) -> Decision:
    return replace(decision, slack_s=slack_s)


def _why(decision: Decision, fallback: GangOption, slack_s: float, rule: str) -> str:
    wanted = " + ".join(f"{t.nodes} × {t.pool}" for t in decision.targets) or "to wait"
    if rule == NO_PAUSE:
        return f"this phase may not pause: {fallback.nodes} × {fallback.pool} instead of {wanted}"
    return (
        f"the deadline binds: {slack_s / 3600:.2f} h of slack is less than a tick at risk, so "
        f"{fallback.nodes} × {fallback.pool} instead of {wanted}"
    )
