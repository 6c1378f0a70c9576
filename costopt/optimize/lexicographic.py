"""Lexicographic optimization: the objective first, then further figures at nearly no cost.

The least of an aim of ``Objective.then`` is searched under a limit on every figure before it (the
ε-constraint method: Haimes, Lasdon and Wismer 1971), which unlike a weight also finds plans off the
convex hull; for an earlier finish the jobs' due times are moved earlier, by bisection. Plans are
compared by the figures that the caller measures: of one job those of its simulation, which also
decides between plans of equal objective. Where these differ from the model's the limits are
corrected by the difference and the plan is made again. At constant prices plans of one
configuration, whose fallback the model does not know, are examined besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from costopt.domain.policy import Objective, ObjectiveTerm
from costopt.optimize.pareto import (
    objective_usd,
    of_known_carbon,
    part_with_objective,
    with_objective,
)
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.request import Ceiling, PlanRequest
from costopt.optimize.segments import Segment
from costopt.optimize.solve import SolverSettings, solve_jobs

FINISH_STEPS, LIMITED_STEPS = 6, 4
"""Plans made for an earlier finish, and under limits, for each variant of the jobs at the most."""

CORRECTED, SAFE = 1e-3, 1e-4
"""Limits are not corrected by less than this share of them; where a plan broke them, by this much
more than it did.
"""

MIN_RISE = 0.25
"""How much less, or more, a measured figure may be taken to rise than the model's."""

UNEXPECTED = 0.02
"""A plan that costs by so much more of the objective than the model expects is made due earlier."""

TIE_BREAK = 1e-3
"""The weight of the objective beside the aim."""

LIMITED_GAP = 0.004
"""The relative gap of plans under limits."""

NOISE = 2e-6
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
        self._bounds: list[_Bound] = []
        self._trials = sum(
            FINISH_STEPS if aim is ObjectiveTerm.FINISH else LIMITED_STEPS
            for aim in self._objective.then
        ) * len(variants)

    def refined(self, best: _Found) -> _Found:
        """Return the plan after all aims."""
        self._bind(None, best)
        for aim in self._objective.then:
            best = self._earlier(best) if aim is ObjectiveTerm.FINISH else self._less(aim, best)
            best = self._or_single(aim, best)
            self._bind(aim, best)
        return best

    def _bind(self, aim: ObjectiveTerm | None, best: _Found) -> None:
        most = best.figures.value(aim)
        if math.isfinite(most):
            self._bounds.append(_Bound(aim, most + self._objective.tolerance * abs(most)))

    def _less(self, aim: ObjectiveTerm, best: _Found) -> _Found:
        """The plan with the least of the aim's figure within the bounds."""
        usd = max(abs(best.figures.objective_usd), 1e-9)
        per_unit = usd / max(_comparable(aim, best.figures), 1e-12)
        trial = NOTHING.plus(_weights(aim), per_unit).plus(self._objective, TIE_BREAK)
        for parts in self._variants:
            last, share = best, 1.0
            limits = [self._limit(bound, last, last) for bound in self._bounds]
            for _ in range(LIMITED_STEPS):
                found = self._solve(trial, [_due(part, share) for part in parts], limits)
                if found is None:
                    break
                keeps = self._keeps(found.figures)
                if keeps and found.figures.value(aim) < best.figures.value(aim):
                    best = found
                if not keeps and self._exceeds_model(found, best):
                    share = (share + _finish_share(parts, best)) / 2
                    continue
                before, limits = limits, [self._limit(b, last, found) for b in self._bounds]
                if keeps and not (self._differ(before, limits) and self._binds(found, before)):
                    break
                last = found
        return best

    def _exceeds_model(self, found: _Found, best: _Found) -> bool:
        """Whether a plan costs notably more than the model expects, as runs that are late do.

        They change to the fallback, of which the model knows nothing; a lower limit would only take
        the plan's saving, where an earlier due time leaves the runs their slack.
        """
        more_usd = (
            found.figures.objective_usd
            - self._model(found, None)
            - (best.figures.objective_usd - self._model(best, None))
        )
        return more_usd > UNEXPECTED * abs(best.figures.objective_usd)

    def _limit(self, bound: _Bound, last: _Found, found: _Found) -> float:
        """The model's figure at which the measured one is at its bound, as two plans suggest."""
        model, own = (self._model(found, bound.aim), found.figures.value(bound.aim))
        more, own_more = model - self._model(last, bound.aim), own - last.figures.value(bound.aim)
        rise = min(max(own_more / more, MIN_RISE), 1 / MIN_RISE) if own_more * more > 0 else 1.0
        limit = model + (bound.most - own) / rise
        limit -= SAFE * abs(bound.most) if own > bound.most else 0.0
        return limit if math.isfinite(limit) else bound.most

    def _model(self, found: _Found, aim: ObjectiveTerm | None) -> float:
        return planned_figures(found.plan.segments, self._objective).value(aim)

    def _binds(self, found: _Found, limits: Sequence[float]) -> bool:
        """Whether a limit keeps the plan from more: else a higher one gives the same plan."""
        return any(
            limit - self._model(found, bound.aim) < LIMITED_GAP * abs(limit)
            for bound, limit in zip(self._bounds, limits, strict=True)
        )

    def _differ(self, before: Sequence[float], now: Sequence[float]) -> bool:
        return any(
            abs(a - b) > CORRECTED * abs(bound.most)
            for a, b, bound in zip(before, now, self._bounds, strict=True)
        )

    def _earlier(self, best: _Found) -> _Found:
        """The plan with the earliest due times that is allowed."""
        low, high, variants = 0.0, 1.0, self._variants
        for _ in range(FINISH_STEPS):
            share = (low + high) / 2
            due = [[_due(part, share) for part in parts] for parts in variants]
            solved = [
                self._solve(self._objective, parts, [b.most for b in self._bounds]) for parts in due
            ]
            kept = [one for one in solved if one is not None and self._keeps(one.figures)]
            if not kept:
                low = share
                continue
            high, self._variants = share, due
            best = min(best, *kept, key=lambda one: one.figures.finish_h)
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

    def _keeps(self, figures: Figures) -> bool:
        return all(
            figures.value(bound.aim) <= bound.most + NOISE * abs(bound.most)
            for bound in self._bounds
        )

    def _solve(
        self, objective: Objective, parts: Sequence[PlannedJob], limits: Sequence[float]
    ) -> _Found | None:
        """A plan within these limits of the model's figures; None if there is none, or no time.

        It is scored by the policy's own objective.
        """
        if self._settings.left_s() <= 0:
            return None
        settings = replace(
            self._settings.within(1 / max(1, self._trials)), gap=LIMITED_GAP, warm=None
        )
        self._trials -= 1
        ceilings = tuple(self._ceilings(limits))
        request = replace(with_objective(self._request, objective), ceilings=ceilings)
        scored = [part_with_objective(part, objective) for part in parts]
        if any(each.weights.usd_per_tonne_co2e > 0 for each in ceilings):
            scored = [of_known_carbon(part) for part in scored]
        answer = solve_jobs(request, scored, settings)
        if not answer.solved:
            return None
        segments = tuple(tuple(self._scored(segment) for segment in own) for own in answer.segments)
        figures = self._measure(segments)
        return None if figures is None else _Found(JobsPlan(parts, segments), figures)

    def _ceilings(self, limits: Sequence[float]) -> Iterator[Ceiling]:
        """Of an earlier finish the due times are the limit."""
        for bound, limit in zip(self._bounds, limits, strict=True):
            if bound.aim is not ObjectiveTerm.FINISH:
                weights = self._objective if bound.aim is None else _weights(bound.aim)
                yield Ceiling(weights, limit)

    def _scored(self, segment: Segment) -> Segment:
        return replace(segment, score=objective_usd((segment,), self._objective))


def _comparable(aim: ObjectiveTerm, figures: Figures) -> float:
    """The aim's figure; of unknown carbon that of a kilogram per kWh."""
    figure = figures.value(aim)
    return figure if math.isfinite(figure) else 1000 * figures.kwh


NOTHING = Objective(usd=0.0)


def _weights(aim: ObjectiveTerm) -> Objective:
    """The objective whose value is the aim's figure."""
    return Objective(
        usd=float(aim is ObjectiveTerm.USD),
        usd_per_kwh=float(aim is ObjectiveTerm.KWH),
        usd_per_tonne_co2e=1e6 * (aim is ObjectiveTerm.CO2E),
    )


def _finish_share(parts: Sequence[PlannedJob], best: _Found) -> float:
    """The share of the time of all jobs after which they end in a plan, 1 at the most."""
    begin_h = sum(part.demand.release_h for part in parts)
    whole_h = sum(part.demand.due_h for part in parts) - begin_h
    return min(1.0, (best.figures.finish_h - begin_h) / whole_h)


def _due(part: PlannedJob, share: float) -> PlannedJob:
    """The part, due at this share of its time."""
    demand = part.demand
    due_h = demand.release_h + share * (demand.due_h - demand.release_h)
    return replace(part, demand=replace(demand, due_h=due_h))
