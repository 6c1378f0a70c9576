"""Where a job stands: the time and the work that are left, in steps of its program."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from costopt.domain.interval import checkpoint_interval_s
from costopt.domain.view import JobView, View
from costopt.strategies.option import EXPECTED_HAZARD_PER_HOUR, GangOption
from costopt.strategies.reserve import remaining_startup_s, seconds_left, seconds_to_finish

MAX_STEPS = 720
"""A run to the deadline is cut into no more steps than this: 5 days of 10 minutes."""


class ProgramState:
    """Where a job stands, in steps of its program."""

    def __init__(
        self, view: View, job_view: JobView, fallback: GangOption, units: float, step_s: float
    ) -> None:
        job = job_view.job
        span_s = (job.deadline_at - job.start_at).total_seconds()
        ticks = max(1, round(step_s / view.tick_s))
        self.view, self.job_view, self.fallback, self.units = view, job_view, fallback, units
        self.step_s = max(ticks * view.tick_s, span_s / MAX_STEPS)
        self.left_s = seconds_left(view, job_view)
        self.work_s = seconds_to_finish(fallback, job, units, 0.0)
        self.start_left_s = remaining_startup_s(view, job_view)
        self.guard_s = fallback.start_s + _at_risk_s(view, job_view)

    @property
    def steps(self) -> float:
        """To the deadline."""
        return self.left_s / self.step_s

    @property
    def slack_steps(self) -> float:
        """Steps that may be spent on waiting or launching before the safe gang must be launched."""
        return (self.left_s - self.work_s - self.guard_s) / self.step_s

    def whole_cost(self, option: GangOption) -> float:
        """Of a launch of this gang and all the work that is left, if nothing comes between.

        It runs for a tick at least, as what is decided stands so long.
        """
        needed_s = max(seconds_to_finish(option, self.job_view.job, self.units), self.view.tick_s)
        work = tuple(option.work_left(self.job_view.job.work.amount - self.units))
        total_s = sum(seconds for _, seconds in work)
        nodes = sum(count * seconds for count, seconds in work) / total_s
        return option.score_usd_per_hour * nodes / option.nodes * needed_s / 3600

    def spans(self) -> list[tuple[datetime, datetime]]:
        """The steps that are left, the last first; of the present one what is still ahead."""
        now, step = self.view.now, timedelta(seconds=self.step_s)
        end_at = now + timedelta(seconds=self.left_s)
        count = max(1, math.ceil(self.steps - 1e-9))
        return [(max(now, end_at - (n + 1) * step), end_at - n * step) for n in range(count)]


def _at_risk_s(view: View, job_view: JobView) -> float:
    """Time that an interruption within the tick can cost besides the start of another gang."""
    checkpoint = job_view.job.checkpoint
    if view.uninterruptible_s >= view.tick_s - 1e-6 and checkpoint.save_s == 0:
        return 0.0
    interval_s = checkpoint.interval_s or checkpoint_interval_s(
        hazard_per_hour=EXPECTED_HAZARD_PER_HOUR, blocking_save_s=checkpoint.save_s
    )
    return view.tick_s + interval_s
