"""Whether a plan does what it says, judged from its allocations alone."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from costopt.domain.job import Job
from costopt.domain.plan import Plan
from costopt.domain.view import JobView
from costopt.optimize.request import PlanRequest
from tests.support.fleet_options import (
    BELIEF_H,
    Choice,
    Parts,
    choice_of,
    hours_from,
    launched,
    limits_of,
    living_of,
    load,
    stages_of,
    window_of,
)

CLOCK_H = 1e-6 / 3600
"""The times of allocations are reported in whole microseconds."""

TINY_H = 1e-5
"""Allocations name whole microseconds; solvers and planners are sure to about this."""

SLIP = 1e-4
"""The share of the work or of a budget that may be off."""


@dataclass(frozen=True)
class Stretch:
    """A gang under a cap over some hours; ``starts`` unless it goes on from the stretch before."""

    choice: Choice
    begin_h: float
    end_h: float
    starts: bool

    @property
    def work_h(self) -> float:
        """Hours without the start."""
        return max(0.0, self.end_h - self.begin_h - (self.choice.start_h if self.starts else 0.0))

    def start_hours(self) -> Iterator[tuple[float, float]]:
        """The hours of the start, cut at whole ones: each is charged at its own price."""
        return _by_hour(self.begin_h, self.begin_h + (self.choice.start_h if self.starts else 0.0))


def stretches_of(request: PlanRequest, plan: Plan, view: JobView) -> list[Stretch]:
    """What a job runs, in order; allocations of the same time are one gang."""
    job = view.job
    groups: dict[tuple[float, float], list[tuple[Parts, float | None]]] = defaultdict(list)
    for a in plan.allocations:
        if a.job == job.name:
            when = hours_from(request, a.start_at), hours_from(request, a.end_at)
            groups[when].append((((a.pool, a.nodes),), a.power_cap_w))
    found: list[Stretch] = []
    for (begin_h, end_h), members in sorted(groups.items()):
        parts = tuple(sorted(part for own, _ in members for part in own))
        choice = choice_of(request, job, parts, members[0][1])
        before, until_h = (living_of(view), 0.0) if not found else _last(found)
        goes_on = before == parts and abs(until_h - begin_h) < TINY_H
        found.append(Stretch(choice, begin_h, end_h, not goes_on))
    return found


def _last(found: Sequence[Stretch]) -> tuple[Parts, float]:
    return found[-1].choice.parts, found[-1].end_h


def faults_of(request: PlanRequest, plan: Plan) -> list[str]:
    """Every constraint that the plan breaks, in words; none for a right plan."""
    found: list[str] = []
    for view in request.jobs:
        own = stretches_of(request, plan, view)
        found += [f"{view.job.name}: {fault}" for fault in _faults_of_job(request, view.job, own)]
    return found + shared_faults_of(request, plan)


def objective_usd(request: PlanRequest, plan: Plan) -> float:
    """What the allocations come to, at the prices of the hours that they lie in."""
    return sum(
        _score(request, stretch)
        for view in request.jobs
        for stretch in stretches_of(request, plan, view)
    )


def _score(request: PlanRequest, stretch: Stretch) -> float:
    choice, total = stretch.choice, 0.0
    if stretch.starts and not choice.start_h:
        total += choice.start_score(request, stretch.begin_h)
    for a, b in stretch.start_hours():
        if choice.start_h:
            total += choice.start_score(request, (a + b) / 2) * (b - a) / choice.start_h
    for a, b in _by_hour(stretch.end_h - stretch.work_h, stretch.end_h):
        total += choice.score_per_h(request, (a + b) / 2) * (b - a)
    return total


def _usd_and_kwh(request: PlanRequest, stretch: Stretch) -> tuple[float, float]:
    choice, usd, kwh = stretch.choice, 0.0, 0.0
    for a, b in stretch.start_hours():
        usd += choice.rent_usd_per_h(request, (a + b) / 2) * (b - a)
    if stretch.starts:
        usd, kwh = usd + choice.start_usd, choice.idle_kw * choice.start_h
    for a, b in _by_hour(stretch.end_h - stretch.work_h, stretch.end_h):
        usd += choice.usd_per_h(request, (a + b) / 2) * (b - a)
        kwh += choice.kwh_per_h * (b - a)
    return usd, kwh


def _by_hour(begin_h: float, end_h: float) -> Iterator[tuple[float, float]]:
    edges = [begin_h, *range(math.floor(begin_h + TINY_H) + 1, math.ceil(end_h - TINY_H)), end_h]
    return pairwise(edges)


def _faults_of_job(request: PlanRequest, job: Job, own: Sequence[Stretch]) -> Iterator[str]:
    begin_h, due_h = window_of(request, job)
    if not own:
        yield "nothing is planned"
        return
    if own[0].begin_h < begin_h - TINY_H:
        yield f"begins at {own[0].begin_h:g} h, before {begin_h:g} h"
    if own[-1].end_h > due_h + TINY_H:
        yield f"ends at {own[-1].end_h:g} h, due at {due_h:g} h"
    if any(a.end_h > b.begin_h + TINY_H for a, b in pairwise(own)):
        yield "two gangs at a time"
    for one in own:
        machines = {request.machines[pool].gpu.model for pool, _ in one.choice.parts}
        if len(machines) > 1:
            yield f"a gang of {', '.join(sorted(machines))}"
    undone = _undone(job, own)
    if undone > SLIP:
        yield f"{undone:.3%} of the work is not done"
    figures = [_usd_and_kwh(request, one) for one in own]
    budget = job.budget
    for most, spent in zip(
        (budget.max_usd, budget.max_kwh), zip(*figures, strict=True), strict=True
    ):
        if most is not None and sum(spent) > most * (1 + SLIP):
            yield f"spends {sum(spent):g} of {most:g}"


def _undone(job: Job, own: Sequence[Stretch]) -> float:
    """The share of the work left, stages one after the other, each on gangs of its size."""
    stages = stages_of(job)
    left = [stage.units for stage in stages]
    number = 0
    for one in own:
        units = (one.work_h + CLOCK_H) * one.choice.units_per_h
        while number < len(stages) and units > 0:
            stage = stages[number]
            if stage.min_nodes <= one.choice.nodes <= stage.max_nodes:
                done = min(units, left[number])
                units, left[number] = units - done, left[number] - done
            if left[number] > SLIP * stage.units:
                break
            number += 1
    return sum(left) / job.work.amount


def shared_faults_of(request: PlanRequest, plan: Plan) -> list[str]:
    """Quotas at every moment; in the first hour what the pools have."""
    found: list[str] = []
    living = {view.job.name: living_of(view) for view in request.jobs}
    spans = [
        (a, hours_from(request, a.start_at), hours_from(request, a.end_at))
        for a in plan.allocations
    ]
    for quota, most in limits_of(request):
        loads = [
            (begin, end, load(request, quota, ((a.pool, a.nodes),))) for a, begin, end in spans
        ]
        if _peak(loads) > most + 1e-9:
            found.append(f"{_peak(loads):g} of quota {quota.name} ({most:g})")
    for offer in request.offers:
        if offer.nodes_available is not None:
            early = [
                (b, e, float(launched(((a.pool, a.nodes),), living[a.job])[a.pool]))
                for a, b, e in spans
                if a.pool == offer.pool
            ]
            peak = _peak([(b, min(e, BELIEF_H), n) for b, e, n in early if b < BELIEF_H - TINY_H])
            if peak > offer.nodes_available:
                found.append(f"{peak:g} of {offer.nodes_available} nodes of {offer.pool}")
    return found


def _peak(loads: Iterable[tuple[float, float, float]]) -> float:
    """The most at a time of (begin, end, load); what ends as another begins is gone by then."""
    changes = [
        change
        for begin, end, most in loads
        if most and end - begin > TINY_H
        for change in ((begin, most), (end - TINY_H, -most))
    ]
    return max(itertools.accumulate(amount for _, amount in sorted(changes)), default=0.0)
