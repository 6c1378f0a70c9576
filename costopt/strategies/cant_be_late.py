"""The published safety net of "Can't Be Late" (Wu et al., NSDI'24, §4.2), in whole ticks.

The shield already guarantees the deadline. These rules are kept beside it because they are part
of the published policies, whose costs the benchmark reproduces: from waiting or on-demand the job
goes to on-demand for good once less than two restart overheads of slack are left; with less than
one, a gang on spot that has finished starting is kept until it is taken.
"""

from __future__ import annotations

import math
from enum import Enum

from costopt.domain.view import JobView, View
from costopt.strategies.option import GangOption, spot_options
from costopt.strategies.reserve import remaining_startup_s, seconds_left


class CapacityMode(Enum):
    """On what the job runs."""

    WAIT = "wait"
    SPOT = "spot"
    SAFE = "safe"


def current_mode(job_view: JobView) -> CapacityMode:
    """On what the job's live nodes run now."""
    if not job_view.nodes:
        return CapacityMode.WAIT
    interruptible = any(n.pool.capacity_type.is_interruptible for n in job_view.nodes)
    return CapacityMode.SPOT if interruptible else CapacityMode.SAFE


def keep_or_cheapest(all_options: tuple[GangOption, ...]) -> GangOption | None:
    """The spot gang that runs now, else the cheapest that can be had."""
    on_spot = spot_options(all_options)
    return next((o for o in on_spot if o.running), None) or next(iter(on_spot), None)


def apply_safety_net(
    view: View, job_view: JobView, wanted: CapacityMode, fallback: GangOption
) -> CapacityMode:
    """``wanted``, or what the published net puts in its place."""
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
