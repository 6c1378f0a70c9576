"""Lexicographic optimization: the objective first, then further figures at nearly no cost.

Where dollars count, the least of an aim of ``Objective.then`` is searched under a limit on dollars
(the ε-constraint method: Haimes, Lasdon and Wismer 1971), which also finds the plans that divide
their time between two configurations. Besides, the aim is weighed on top of the objectives before
it, as heavily as the tolerance allows; for an earlier finish the jobs' due times are moved earlier.
The weight, or the share of the time, is found by bisection on whole plans, so that it works with
any solver. Of the plans off the convex hull only those of one configuration are then examined.
Plans are compared by the figures that the caller measures: of one job those of its simulation,
which also decides between plans of equal objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from costopt.domain.policy import Objective, ObjectiveTerm
from costopt.optimize.pareto import objective_usd, part_with_objective, with_objective
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment
from costopt.optimize.solve import SolverSettings, is_time_varying, solve_jobs

STEPS = 6
"""Plans made for each aim and variant of the jobs at the most."""

MIN_WEIGHT, MAX_WEIGHT = 1e-4, 10.0
"""Weights tried: the aim's figure counts so much of the objective."""

LIMITED_STEPS, LEFT_OVER = 4, 1e-3
"""Plans made under a limit on dollars, and the share of the limit that may be left unused."""

TIE_BREAK = 1e-3
"""The weight of the objective beside the aim under such a limit."""

NOISE = 1e-7
"""Relative slip of solvers."""

Segments = tuple[tuple[Segment, ...], ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """The totals of a plan. ``gco2e`` is NaN where a carbon intensity is unknown.

    ``finish_h`` is the sum over the jobs, in hours from now.
    """

    objective_usd: float
    usd: float
    kwh: float
    gco2e: float
    finish_h: float

    def value(self, aim: ObjectiveTerm | None) -> float:
        """Return the figure of an aim; None stands for the objective."""
        return {
            None: self.objective_usd,
            ObjectiveTerm.USD: self.usd,
            ObjectiveTerm.KWH: self.kwh,
            ObjectiveTerm.CO2E: self.gco2e,
            ObjectiveTerm.FINISH: self.finish_h,
        }[aim]


@dataclass(frozen=True, slots=True)
class JobsPlan:
    """A plan of all jobs, and the jobs as it was solved for."""

    parts: Sequence[PlannedJob]
    segments: Segments


Measure = Callable[[Segments], Figures | None]
"""The figures by which plans are compared; None for a plan that may not be taken."""


Singles = Callable[[ObjectiveTerm, float], Iterable[Segments]]
"""Plans of one configuration with little of an aim's figure, of an objective below a limit ($)."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """A figure that later aims may not make larger than ``most``."""

    aim: ObjectiveTerm | None
    most: float


@dataclass(frozen=True, slots=True)
class _Found:
    plan: JobsPlan
    figures: Figures


def planned_figures(segments: Segments, objective: Objective) -> Figures:
    """Return the figures of a plan as the model expects them."""
    each = [segment for own in segments for segment in own]
    return Figures(
        objective_usd(each, objective),
        sum(s.usd for s in each),
        sum(s.kwh for s in each),
        sum(s.kwh * s.gco2e_per_kwh for s in each),
        sum(own[-1].end_h for own in segments),
    )


def improve_in_order(
    request: PlanRequest,
    plan: JobsPlan,
    variants: Sequence[Sequence[PlannedJob]],
    measure: Measure,
    settings: SolverSettings,
    singles: Singles | None = None,
) -> JobsPlan:
    """Return the plan after the objective's further aims, within its tolerance; else the one given.

    ``variants`` are the jobs as further plans may be solved for. Segments are scored by the
    policy's objective. What does not improve within the time is left as it is.

    Raise SolverError if the solver fails.
    """
    figures = measure(plan.segments)
    if figures is None:
        return plan
    order = _Order(request, variants, measure, settings, singles)
    return order.refined(_Found(plan, figures)).plan


class _Order:
    def __init__(
        self,
        request: PlanRequest,
        variants: Sequence[Sequence[PlannedJob]],
        measure: Measure,
        settings: SolverSettings,
        singles: Singles | None,
    ) -> None:
        self._request, self._variants, self._measure = request, variants, measure
        self._settings, self._singles = settings, singles
        self._objective = request.policy.objective
        self._weighed = self._objective
        self._bounds: list[_Bound] = []
        self._trials = (STEPS + LIMITED_STEPS) * len(self._objective.then) * len(variants)

    def refined(self, best: _Found) -> _Found:
        """Return the plan after all aims."""
        self._bind(None, best)
        for aim in self._objective.then:
            if aim is ObjectiveTerm.FINISH:
                best = self._earlier(best)
            else:
                best = self._lighter(aim, self._limited(aim, best))
            best = self._or_single(aim, best)
            self._bind(aim, best)
        return best

    def _bind(self, aim: ObjectiveTerm | None, best: _Found) -> None:
        most = best.figures.value(aim)
        if math.isfinite(most):
            slip = self._objective.tolerance + NOISE
            self._bounds.append(_Bound(aim, most + slip * abs(most)))

    def _limited(self, aim: ObjectiveTerm, best: _Found) -> _Found:
        """The plan with the least of the aim's figure within a limit on dollars.

        The limit is corrected by what the plan found leaves of the tolerance, or exceeds it by.
        Plans over slots find few mixes under such a limit, and take their time: weights must do.
        """
        own, most = self._objective, self._bounds[0].most
        if own.usd <= 0:
            return best
        score = max(abs(best.figures.objective_usd), 1e-9)
        per_unit = score / max(_comparable(aim, best.figures), 1e-12)
        trial = _with_weight(replace(own, usd=TIE_BREAK * own.usd), aim, per_unit)
        if is_time_varying(with_objective(self._request, trial), self._variants[0]):
            return best
        limit_usd = best.figures.usd + (most - best.figures.objective_usd) / own.usd
        for _ in range(LIMITED_STEPS):
            solved = [self._solve(trial, parts, limit_usd) for parts in self._variants]
            found = [one for one in solved if one is not None]
            if not found:
                break
            kept = [one for one in found if self._keeps(one.figures)]
            least = min(kept or found, key=lambda one: _known_first(one.figures.value(aim)))
            if kept and least.figures.value(aim) < best.figures.value(aim):
                best = least
            left_usd = (most - least.figures.objective_usd) / own.usd
            if 0 <= left_usd <= LEFT_OVER * limit_usd:
                break
            limit_usd += left_usd
        return best

    def _lighter(self, aim: ObjectiveTerm, best: _Found) -> _Found:
        """The plan with the least of the aim's figure, by the greatest weight that is allowed."""
        score = max(abs(best.figures.objective_usd), 1e-9)
        per_unit = score / max(_comparable(aim, best.figures), 1e-12)
        low, high = MIN_WEIGHT, MAX_WEIGHT
        weight, kept = MAX_WEIGHT, self._weighed
        for _ in range(STEPS):
            trial = _with_weight(kept, aim, weight * per_unit)
            found = self._least(aim, trial, self._variants)
            if found is not None:
                low = weight
                if not found.figures.value(aim) >= best.figures.value(aim):
                    best, self._weighed = found, trial
                if weight == MAX_WEIGHT:
                    break
            else:
                high = weight
            weight = math.sqrt(low * high)
        return best

    def _earlier(self, best: _Found) -> _Found:
        """The plan with the earliest due times that is allowed."""
        low, high = 0.0, 1.0
        for _ in range(STEPS):
            share = (low + high) / 2
            due = [[_due(part, share) for part in parts] for parts in self._variants]
            found = self._least(ObjectiveTerm.FINISH, self._weighed, due)
            if found is not None:
                high = share
                if found.figures.finish_h < best.figures.finish_h:
                    best = found
            else:
                low = share
        return best

    def _or_single(self, aim: ObjectiveTerm, best: _Found) -> _Found:
        """The best plan so far, or one of a single configuration that is better in the aim."""
        if self._singles is None:
            return best
        for segments in self._singles(aim, self._bounds[0].most):
            figures = self._measure(segments)
            if figures is None or not self._keeps(figures):
                continue
            if figures.value(aim) < best.figures.value(aim):
                best = _Found(JobsPlan(self._variants[-1], segments), figures)
        return best

    def _least(
        self, aim: ObjectiveTerm, objective: Objective, variants: Sequence[Sequence[PlannedJob]]
    ) -> _Found | None:
        """Of the plans that keep every bound the one with the least of the aim's figure."""
        found = [self._solve(objective, parts) for parts in variants]
        kept = [one for one in found if one is not None and self._keeps(one.figures)]
        return min(kept, key=lambda one: _known_first(one.figures.value(aim)), default=None)

    def _keeps(self, figures: Figures) -> bool:
        return all(figures.value(bound.aim) <= bound.most for bound in self._bounds)

    def _solve(
        self, objective: Objective, parts: Sequence[PlannedJob], limit_usd: float | None = None
    ) -> _Found | None:
        """A plan, scored by the policy's own objective; None where there is none, or no time."""
        if self._settings.left_s() <= 0:
            return None
        settings = replace(self._settings.within(1 / max(1, self._trials)), warm=None)
        self._trials -= 1
        request = with_objective(self._request, objective)
        scored = [part_with_objective(part, objective) for part in parts]
        if limit_usd is not None:
            request = _within_usd(request, limit_usd)
            scored = [_with_budget(part, limit_usd) for part in scored]
        answer = solve_jobs(request, scored, settings)
        if not answer.solved:
            return None
        segments = tuple(tuple(self._scored(segment) for segment in own) for own in answer.segments)
        figures = self._measure(segments)
        return None if figures is None else _Found(JobsPlan(parts, segments), figures)

    def _scored(self, segment: Segment) -> Segment:
        return replace(segment, score=objective_usd((segment,), self._objective))


def _within_usd(request: PlanRequest, limit_usd: float) -> PlanRequest:
    """The request with a limit on the dollars of all jobs together."""
    limits = request.policy.limits
    most = limit_usd if limits.max_usd is None else min(limits.max_usd, limit_usd)
    return replace(request, policy=replace(request.policy, limits=replace(limits, max_usd=most)))


def _with_budget(part: PlannedJob, limit_usd: float) -> PlannedJob:
    """The part with the limit as its budget too, so that cheap configurations are considered."""
    job = part.demand.job
    own = job.budget.max_usd
    budget = replace(job.budget, max_usd=limit_usd if own is None else min(own, limit_usd))
    return replace(part, demand=replace(part.demand, job=replace(job, budget=budget)))


def _known_first(value: float) -> tuple[bool, float]:
    """Unknown figures come last."""
    return math.isnan(value), value


def _comparable(aim: ObjectiveTerm, figures: Figures) -> float:
    """The aim's figure; of unknown carbon that of a kilogram per kWh."""
    figure = figures.value(aim)
    return figure if math.isfinite(figure) else 1000 * figures.kwh


def _with_weight(objective: Objective, aim: ObjectiveTerm, weight: float) -> Objective:
    if aim is ObjectiveTerm.USD:
        return replace(objective, usd=objective.usd + weight)
    if aim is ObjectiveTerm.KWH:
        return replace(objective, usd_per_kwh=objective.usd_per_kwh + weight)
    per_tonne = objective.usd_per_tonne_co2e + weight * 1e6
    return replace(objective, usd_per_tonne_co2e=per_tonne)


def _due(part: PlannedJob, share: float) -> PlannedJob:
    """The part, due at this share of its time."""
    demand = part.demand
    due_h = demand.release_h + share * (demand.due_h - demand.release_h)
    return replace(part, demand=replace(demand, due_h=due_h))
