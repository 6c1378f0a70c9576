"""The cheapest run of a job on the market that its real run sees; it launches nothing.

What it has spent and its end is expected to cost is what a run within a tolerance is compared with.
Both see the same prices and the same capacity, so a market that is scarcer than expected makes both
costlier, and the difference is what the aim has cost. The run is taken to save its work before each
interruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.fleet import Node, NodeState
from costopt.domain.view import JobView, Target, View
from costopt.strategies.gang_options import GangOption, gang_options
from costopt.strategies.remaining_time import is_running, seconds_to_finish


@dataclass(slots=True)
class CheapestRun:
    """``job_view`` is how the job would be now, ``spent_usd`` what that would have cost."""

    job_view: JobView
    seen_at: datetime
    spent_usd: float = 0.0
    _gang: GangOption | None = None

    @property
    def units(self) -> float:
        """Return the work that is left."""
        return max(0.0, self.job_view.job.work.amount - self.job_view.progress.done_units)

    def advance(self, view: View, real: JobView) -> None:
        """Do the work since the last tick; the gang is lost where its pool has no capacity now.

        A pool in which the real run has its nodes has capacity.
        """
        elapsed_s = (view.now - self.seen_at).total_seconds()
        self.job_view = replace(self.job_view, job=real.job, speed_factor=real.speed_factor)
        gang = self._gang
        if gang is not None and elapsed_s > 0:
            self.spent_usd += gang.score_usd_per_hour * elapsed_s / 3600
            self._work(view, gang, elapsed_s)
            pool = _alike(gang_options(view, real), gang.targets)
            if not self.units or not any(each.free or each.running for each in pool):
                self._gang = None
                self.job_view = replace(self.job_view, nodes=())
        self.seen_at = view.now

    def _work(self, view: View, gang: GangOption, elapsed_s: float) -> None:
        """Work at the expected speed: decisions rest on a low one until it is measured."""
        job, progress = self.job_view.job, self.job_view.progress
        start_s = 0.0
        if progress.starting_until is not None:
            start_s = max(0.0, (progress.starting_until - self.seen_at).total_seconds())
        needed_s = seconds_to_finish(gang, job, self.units, 0.0)
        phase, machine = job.phase_at(progress.done_units), view.machines.get(gang.pool)
        speed = None if machine is None else job.gang_units_per_s(machine, gang.nodes, phase)
        if speed is not None:
            needed_s *= gang.units_per_s / (speed.value * self.job_view.speed_factor)
        share = min(1.0, max(0.0, elapsed_s - start_s) / needed_s) if needed_s > 0 else 1.0
        done_units = progress.done_units + share * self.units
        progress = replace(progress, done_units=done_units, saved_units=done_units)
        self.job_view = replace(self.job_view, progress=progress)

    def follow(self, view: View, targets: tuple[Target, ...]) -> None:
        """Run on these targets, or none, until the next tick.

        A gang that is left is paid so long: it saves its work.
        """
        gang = next(_alike(gang_options(view, self.job_view), targets), None)
        if self._gang is not None and (gang is None or gang.targets != self._gang.targets):
            self.spent_usd += self._gang.score_usd_per_hour * view.tick_s / 3600
        if gang is not None and not is_running(self.job_view, gang.targets):
            until = view.now + timedelta(seconds=gang.start_s)
            progress = replace(self.job_view.progress, starting_until=until)
            node = Node("", "", "", gang.pool, "", NodeState.RUNNING, view.now, 0.0)
            self.job_view = replace(self.job_view, nodes=(node,) * gang.nodes, progress=progress)
        elif gang is None:
            self.job_view = replace(self.job_view, nodes=())
        self._gang = gang


def _alike(options: Iterable[GangOption], targets: tuple[Target, ...]) -> Iterator[GangOption]:
    return (each for each in options if each.targets == targets)
