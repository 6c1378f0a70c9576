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
from costopt.strategies.option import Option, spot
from costopt.strategies.reserve import seconds_left, start_left_s


class Mode(Enum):
    """On what the job runs."""

    WAIT = "wait"
    SPOT = "spot"
    SAFE = "safe"


def present_mode(job_view: JobView) -> Mode:
    """On what the job's live nodes run now."""
    if not job_view.nodes:
        return Mode.WAIT
    interruptible = any(n.pool.capacity_type.interruptible for n in job_view.nodes)
    return Mode.SPOT if interruptible else Mode.SAFE


def keep_or_cheapest(all_options: tuple[Option, ...]) -> Option | None:
    """The spot gang that runs now, else the cheapest that can be had."""
    on_spot = spot(all_options)
    return next((o for o in on_spot if o.running), None) or next(iter(on_spot), None)


def safety_net(view: View, job_view: JobView, wanted: Mode, fallback: Option) -> Mode:
    """``wanted``, or what the published net puts in its place."""
    job, tick = job_view.job, view.tick_s
    work_s = (job.work.amount - job_view.progress.done_units) / fallback.units_per_s
    left_s = math.floor(seconds_left(view, job_view) / tick + 1e-9) * tick
    mode = present_mode(job_view)
    if _ticks(work_s + 2 * job.overhead_s, tick) >= left_s and mode is not Mode.SPOT:
        wanted = Mode.SAFE
    if _ticks(work_s + job.overhead_s, tick) >= left_s:
        started = mode is Mode.SPOT and start_left_s(view, job_view) <= 0
        wanted = Mode.SPOT if started else Mode.SAFE
    return wanted


def _ticks(seconds: float, tick_s: float) -> float:
    return math.ceil(seconds / tick_s - 1e-9) * tick_s
