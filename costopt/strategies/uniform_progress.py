"""Uniform Progress of "Can't Be Late" (Wu et al., NSDI'24, §4), and its published safety net.

With W the work in hours on the safe gang, D the time from start to deadline, c(t) what is done
and t the time since the start: spot whenever there is any; on-demand where there is none and the
job has fallen behind the uniform pace, c(t) < t · W / D. An on-demand gang is kept until there is
spot again and, by the hysteresis, the job is ahead by the pace of two restart overheads d:
c(t) > (t + 2d) · W / D.

The safety net (§4.2) works in whole ticks: from waiting or on-demand the job goes to on-demand for
good once less than two restart overheads of slack are left; with less than one, a gang on spot that
has finished starting is kept until it is interrupted. The shield already guarantees the deadline.
These rules are kept beside it because they are part of the published policies, whose costs the
benchmark reproduces.
"""

from __future__ import annotations

import math
from enum import Enum

from costopt.domain.view import Decision, Desired, JobView, View
from costopt.strategies.gang_options import (
    GangOption,
    gang_options,
    spot_options,
    uninterruptible_options,
)
from costopt.strategies.remaining_time import remaining_startup_s, seconds_left
from costopt.strategies.shield import choose_fallback


class UniformProgressStrategy:
    """``hysteresis`` False gives the variant that leaves on-demand for spot at once."""

    def __init__(self, hysteresis: bool = True) -> None:
        self.hysteresis = hysteresis

    def decide(self, view: View) -> Desired:
        """Return one decision per job."""
        return Desired(tuple(self._decide(view, jv) for jv in view.jobs))

    def _decide(self, view: View, job_view: JobView) -> Decision:
        name = job_view.job.name
        all_options = gang_options(view, job_view)
        on_spot = keep_or_cheapest(all_options)
        units = job_view.job.work.amount - job_view.progress.done_units
        fallback = choose_fallback(view, job_view, uninterruptible_options(all_options), units)
        mode = self._mode(view, job_view, on_spot, fallback)
        if fallback is not None:
            mode = apply_safety_net(view, job_view, mode, fallback)
        if mode is CapacityMode.SAFE and fallback is not None:
            return Decision(name, fallback.targets, "behind the uniform pace: on-demand")
        if on_spot is not None:
            return Decision(name, on_spot.targets, f"spot is available: {on_spot.pool}")
        return Decision(name, (), "ahead of the uniform pace and no spot: wait")

    def _mode(
        self, view: View, job_view: JobView, on_spot: GangOption | None, fallback: GangOption | None
    ) -> CapacityMode:
        if fallback is None:
            return CapacityMode.SPOT if on_spot else CapacityMode.WAIT
        ahead_s = _ahead_s(view, job_view, fallback, 0.0)
        mode = CapacityMode.SPOT if on_spot else CapacityMode.WAIT
        if ahead_s < 0 and on_spot is None:
            mode = CapacityMode.SAFE
        if current_mode(job_view) is not CapacityMode.SAFE:
            return mode
        margin_s = 2 * job_view.job.overhead_s
        regained = _ahead_s(view, job_view, fallback, margin_s) > 0
        leaves = on_spot is not None and (regained or not self.hysteresis)
        return CapacityMode.SPOT if leaves else CapacityMode.SAFE


def _ahead_s(view: View, job_view: JobView, fallback: GangOption, margin_s: float) -> float:
    """Seconds of work by which the job is ahead of the uniform pace at now + margin."""
    job = job_view.job
    work_s = job.work.amount / fallback.units_per_s
    done_s = job_view.progress.done_units / fallback.units_per_s
    elapsed_s = (view.now - job.start_at).total_seconds()
    span_s = (job.until_at - job.start_at).total_seconds()
    return done_s - (elapsed_s + margin_s) * work_s / span_s


class CapacityMode(Enum):
    """The capacity type on which the job runs."""

    WAIT = "wait"
    SPOT = "spot"
    SAFE = "safe"


def current_mode(job_view: JobView) -> CapacityMode:
    """Return the mode of the job's live nodes."""
    if not job_view.nodes:
        return CapacityMode.WAIT
    interruptible = any(n.pool.capacity_type.is_interruptible for n in job_view.nodes)
    return CapacityMode.SPOT if interruptible else CapacityMode.SAFE


def keep_or_cheapest(all_options: tuple[GangOption, ...]) -> GangOption | None:
    """Return the spot gang that runs now, else the cheapest one available."""
    on_spot = spot_options(all_options)
    return next((o for o in on_spot if o.running), None) or next(iter(on_spot), None)


def apply_safety_net(
    view: View, job_view: JobView, wanted: CapacityMode, fallback: GangOption
) -> CapacityMode:
    """Return ``wanted``, or the option with which the published net replaces it."""
    job, tick = job_view.job, view.tick_s
    work_s = (job.work.amount - job_view.progress.done_units) / fallback.units_per_s
    left_s = math.floor(seconds_left(view, job_view) / tick + 1e-9) * tick
    mode = current_mode(job_view)
    if _ticks(work_s + 2 * job.overhead_s, tick) >= left_s and mode is not CapacityMode.SPOT:
        wanted = CapacityMode.SAFE
    if _ticks(work_s + job.overhead_s, tick) >= left_s:
        started = mode is CapacityMode.SPOT and remaining_startup_s(view, job_view) <= 0
        wanted = CapacityMode.SPOT if started else CapacityMode.SAFE
    return wanted


def _ticks(seconds: float, tick_s: float) -> float:
    return math.ceil(seconds / tick_s - 1e-9) * tick_s
