"""The remaining work of a job, in stages with their own gang sizes, and the time left for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from costopt.domain.errors import InfeasibleError
from costopt.domain.fleet import NodeState
from costopt.domain.job import Job, Phase
from costopt.domain.market import Pool
from costopt.domain.progress import GangState
from costopt.domain.view import JobView


@dataclass(frozen=True, slots=True)
class Stage:
    """A phase, or neighbouring ones that differ in nothing but their name.

    ``units`` of work are left on min to max nodes. ``begun`` tells that some of it is done: if the
    phase may not pause, it may not wait from now on.
    """

    units: float
    min_nodes: int
    max_nodes: int
    phase: Phase
    begun: bool = False

    @property
    def name(self) -> str:
        """Return the names of the phases."""
        return self.phase.name

    @property
    def may_pause(self) -> bool:
        """Return whether the stage may wait for capacity once it has begun."""
        return self.phase.may_pause

    def continues(self, other: Stage) -> bool:
        """Return whether ``other``, which comes next, can be done as one stage with this.

        Phases that may not pause stay apart, because the job may pause between them.
        """
        return (
            self.may_pause
            and (self.min_nodes, self.max_nodes) == (other.min_nodes, other.max_nodes)
            and replace(self.phase, name="", share=0.0) == replace(other.phase, name="", share=0.0)
        )

    def then(self, other: Stage) -> Stage:
        """Return this stage and ``other`` as one."""
        phase = replace(self.phase, name=f"{self.name}, {other.name}")
        return replace(self, units=self.units + other.units, phase=phase)


@dataclass(frozen=True, slots=True)
class Demand:
    """A job as the model sees it. Hours count from the request's ``now``.

    The ``max_usd`` of ``job`` also holds for its budget by months. ``due_h`` is the deadline less
    the policy's ``reserve_h``. ``running`` is the living gang by pool; ``starting_h`` is the
    remainder of its start-up. ``speed_factor`` is the measured speed of the job over the one that
    its spec predicts, taken to hold on every pool. ``begun`` tells that a start loads a checkpoint.
    """

    job: Job
    stages: tuple[Stage, ...]
    release_h: float
    due_h: float
    running: Mapping[Pool, int]
    starting_h: float
    measured_units_per_s: float | None
    speed_factor: float = 1.0
    begun: bool = True
    reserve_h: float = 0.0

    @property
    def units(self) -> float:
        """Return all the remaining work in units."""
        return sum(stage.units for stage in self.stages)

    @property
    def stage_units(self) -> NDArray[np.float64]:
        """Return the remaining work of each stage in units, shape (stages,)."""
        return np.array([stage.units for stage in self.stages])

    @property
    def hours_left(self) -> float:
        """Return the hours that the job may use, from its release to its due time."""
        return self.due_h - self.release_h


def remaining_demand(view: JobView, now: datetime, reserve_s: float) -> Demand | None:
    """Return the remaining demand of a job, or None if it is done.

    Raise InfeasibleError if an amount of work, a done amount or a time is not finite.
    """
    job, progress = view.job, view.progress
    running = Counter(
        node.pool for node in view.nodes if node.state in (NodeState.PENDING, NodeState.RUNNING)
    )
    done = progress.done_units if running else progress.saved_units
    for name, value in (
        ("work amount", job.work.amount),
        ("work done", done),
        ("start-up time", job.overhead_s),
        ("save time", job.checkpoint.save_s),
        ("checkpoint interval", job.checkpoint.interval_s or 0.0),
    ):
        if not math.isfinite(value) or value < 0:
            raise InfeasibleError(
                f"job {job.name!r}: the {name} is {value:g}, not a finite number from 0 up",
                hint="correct the job file",
            )
    if job.checkpoint.interval_s == 0:
        raise InfeasibleError(
            f"job {job.name!r}: the checkpoint interval is 0 s, so no work is done between saves",
            hint="set interval: auto",
        )
    if progress.state is GangState.FINISHED or done >= job.work.amount * (1 - 1e-12):
        return None
    return Demand(
        job=_with_months(job, now),
        stages=_stages(job, done),
        release_h=max(0.0, (job.start_at - now).total_seconds() / 3600),
        due_h=((job.until_at - now).total_seconds() - reserve_s) / 3600,
        running=running,
        starting_h=_starting_h(view, now),
        measured_units_per_s=_measured_units_per_s(view),
        speed_factor=_speed_factor(view),
        begun=progress.saved_units > 0,
        reserve_h=reserve_s / 3600,
    )


def _with_months(job: Job, now: datetime) -> Job:
    """The job with the dollars of its months as a part of its budget in all."""
    if job.budget.max_usd_per_month is None:
        return job
    max_usd = job.budget.max_usd_between(max(now, job.start_at), job.until_at)
    return replace(job, budget=replace(job.budget, max_usd=max_usd))


def _measured_units_per_s(view: JobView) -> float | None:
    """What the living gang does, as it would do it without power limits."""
    measured = view.progress.measured_units_per_s
    return None if measured is None else measured / view.capped_speed


def _speed_factor(view: JobView) -> float:
    """1 where the figure is of no use."""
    factor = view.speed_factor
    return factor if math.isfinite(factor) and factor > 0 else 1.0


def _stages(job: Job, done: float) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    bound = 0.0
    for phase in job.phases:
        begin, bound = bound, bound + phase.share * job.work.amount
        units = bound - max(begin, done)
        if units <= 1e-12 * job.work.amount:
            continue
        fewest = max(phase.min_nodes, job.resources.min_nodes)
        most = min(phase.max_nodes, job.resources.max_nodes)
        stage = Stage(units, fewest, most, phase, begun=done > begin)
        if stages and stages[-1].continues(stage):
            stages[-1] = stages[-1].then(stage)
        else:
            stages.append(stage)
    if not stages:
        fewest, most = job.resources.min_nodes, job.resources.max_nodes
        return (Stage(job.work.amount - done, fewest, most, job.phases[-1], begun=True),)
    return tuple(stages)


def _starting_h(view: JobView, now: datetime) -> float:
    """A gang that trains has none left; one that has not said when counts from its launch."""
    progress = view.progress
    if progress.state is GangState.TRAINING:
        return 0.0
    until = progress.starting_until
    if until is None:
        launched_at = max((node.launched_at for node in view.nodes), default=now)
        until = launched_at + timedelta(seconds=view.job.overhead_s)
    left_s = (until - now).total_seconds()
    return min(max(left_s, 0.0), view.job.overhead_s) / 3600
