"""One aim after the other: the objective first, then less of further figures at nearly no cost.

An aim of ``Objective.then`` is weighed on top of what comes before it, as heavily as the tolerance
allows; for an earlier finish the jobs' due times are drawn in. The weight, or the share of the
time, is found by bisection on whole plans, so that any solver below does; plans off the convex hull
of the figures are not looked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from costopt.domain.policy import Aim, Objective
from costopt.optimize.aims import aimed, aimed_part, objective_of
from costopt.optimize.job_part import JobPart
from costopt.optimize.layout import Segment
from costopt.optimize.request import PlanRequest
from costopt.optimize.solve import Answer, Settings, solve_parts

STEPS = 6
"""Plans made for each aim at the most."""

LEAST, MOST = 1e-4, 10.0
"""Weights tried: the aim's figure counts so much of the objective."""

NOISE = 1e-7
"""Relative slip of solvers."""

Plan = tuple[tuple[Segment, ...], ...]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A figure that later aims may not make larger than ``most``."""

    aim: Aim | None
    most: float


def solve_in_order(request: PlanRequest, parts: Sequence[JobPart], settings: Settings) -> Answer:
    """As ``solve_parts``, then the objective's further aims within its tolerance.

    The answer's objective and bound are those of the policy's objective. What does not improve
    within the time is left as it is. Raises SolverError.
    """
    started = time.perf_counter()
    answer = solve_parts(request, parts, settings)
    if not answer.solved or not request.policy.objective.then:
        return answer
    found = _Order(request, parts, settings, started).refined(answer.segments)
    objective_usd = sum(segment.score for own in found for segment in own)
    bound_usd = min(answer.bound_usd, objective_usd)
    return replace(answer, segments=found, objective_usd=objective_usd, bound_usd=bound_usd)


class _Order:
    def __init__(
        self, request: PlanRequest, parts: Sequence[JobPart], settings: Settings, started: float
    ) -> None:
        self._request, self._parts = request, parts
        self._objective = request.policy.objective
        self._settings, self._started = settings, started
        self._weighed = self._objective
        self._bounds: list[_Bound] = []

    def refined(self, plan: Plan) -> Plan:
        """The plan after all aims."""
        self._bind(None, plan)
        for aim in self._objective.then:
            plan = self._earlier(plan) if aim is Aim.FINISH else self._lighter(aim, plan)
            self._bind(aim, plan)
        return plan

    def _bind(self, aim: Aim | None, plan: Plan) -> None:
        most = self._figure(aim, plan)
        if math.isfinite(most):
            slip = self._objective.tolerance + NOISE
            self._bounds.append(_Bound(aim, most + slip * abs(most)))

    def _figure(self, aim: Aim | None, plan: Plan) -> float:
        segments = [segment for own in plan for segment in own]
        if aim is None:
            return objective_of(segments, self._objective)
        if aim is Aim.USD:
            return sum(s.usd for s in segments)
        if aim is Aim.KWH:
            return sum(s.kwh for s in segments)
        if aim is Aim.CO2E:
            return sum(s.kwh * s.gco2e_per_kwh for s in segments)
        return sum(own[-1].end_h for own in plan)

    def _lighter(self, aim: Aim, plan: Plan) -> Plan:
        """The plan with the least of the aim's figure, by the greatest weight that is allowed."""
        score = max(abs(self._figure(None, plan)), 1e-9)
        per_unit = score / max(self._comparable(aim, plan), 1e-12)
        low, high = LEAST, MOST
        weight, best, kept = MOST, plan, self._weighed
        for _ in range(STEPS):
            trial = _with_weight(kept, aim, weight * per_unit)
            found = self._solve(trial, self._parts)
            if found is not None and self._keeps(found):
                low = weight
                if not self._figure(aim, found) >= self._figure(aim, best):
                    best, self._weighed = found, trial
                if weight == MOST:
                    break
            else:
                high = weight
            weight = math.sqrt(low * high)
        return best

    def _comparable(self, aim: Aim, plan: Plan) -> float:
        """The aim's figure; of unknown carbon that of a kilogram per kWh."""
        figure = self._figure(aim, plan)
        return figure if math.isfinite(figure) else 1000 * self._figure(Aim.KWH, plan)

    def _earlier(self, plan: Plan) -> Plan:
        """The plan with the earliest due times that is allowed."""
        best = plan
        low, high = 0.0, 1.0
        for _ in range(STEPS):
            share = (low + high) / 2
            found = self._solve(self._weighed, [_due(part, share) for part in self._parts])
            if found is not None and self._keeps(found):
                high = share
                if self._figure(Aim.FINISH, found) < self._figure(Aim.FINISH, best):
                    best = found
            else:
                low = share
        return best

    def _keeps(self, plan: Plan) -> bool:
        return all(self._figure(bound.aim, plan) <= bound.most for bound in self._bounds)

    def _solve(self, objective: Objective, parts: Sequence[JobPart]) -> Plan | None:
        """A plan, told in the policy's own objective; None where there is none, or no time."""
        left_s = self._settings.time_limit_s - (time.perf_counter() - self._started)
        if left_s <= 0:
            return None
        steps = STEPS * len(self._objective.then)
        settings = replace(
            self._settings, warm=None, time_limit_s=max(0.1, self._settings.time_limit_s / steps)
        )
        request = aimed(self._request, objective)
        answer = solve_parts(request, [aimed_part(part, objective) for part in parts], settings)
        if not answer.solved:
            return None
        return tuple(tuple(self._told(segment) for segment in own) for own in answer.segments)

    def _told(self, segment: Segment) -> Segment:
        return replace(segment, score=objective_of((segment,), self._objective))


def _with_weight(objective: Objective, aim: Aim, weight: float) -> Objective:
    if aim is Aim.USD:
        return replace(objective, usd=objective.usd + weight)
    if aim is Aim.KWH:
        return replace(objective, usd_per_kwh=objective.usd_per_kwh + weight)
    per_tonne = objective.usd_per_tonne_co2e + weight * 1e6
    return replace(objective, usd_per_tonne_co2e=per_tonne)


def _due(part: JobPart, share: float) -> JobPart:
    """The part, due at this share of its time."""
    demand = part.demand
    due_h = demand.release_h + share * (demand.due_h - demand.release_h)
    return replace(part, demand=replace(demand, due_h=due_h))
