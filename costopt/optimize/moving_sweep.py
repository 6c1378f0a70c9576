"""Plans of one job whose prices move, for its frontier: by weights of kWh and by due times.

Each is the cheapest path over slots at a weight (``fleet.response``), on slots and forecasts that
all of them share; no bound is sought.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from costopt.domain.errors import SolverError
from costopt.domain.policy import Objective
from costopt.optimize.aims import part_with_objective, with_objective
from costopt.optimize.fleet.capacity import SharedCapacity
from costopt.optimize.fleet.handover import cheapest_staged_schedule
from costopt.optimize.fleet.menus import Menus
from costopt.optimize.fleet.response import cheaper_response, cheapest_schedule
from costopt.optimize.fleet.solve import planning_slots
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.layout import Segment, segments_of, verify
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import shared_limits
from costopt.optimize.tariff import ForecastTable, SlotCosts

MIN_WEIGHT, MAX_WEIGHT = 0.02, 50.0
"""Weights between the ends: a kWh counts from so little to so much of what one costs on average."""

Segments = tuple[Segment, ...]


def needs_slots(request: PlanRequest, part: PlannedJob) -> bool:
    """Whether the job has to be planned over slots, since prices move."""
    pools = {offer.pool for offer in part.table.offers}
    return not pools.isdisjoint(request.price_forecasts)


class TimeVaryingSweep:
    """Finds plans of ``part`` until ``stop_at`` of the performance counter."""

    def __init__(self, request: PlanRequest, part: PlannedJob, stop_at: float) -> None:
        self._request, self._part, self._stop_at = request, part, stop_at
        slots = planning_slots(request, [part.demand])
        self._capacity = SharedCapacity(request, slots, shared_limits(request))
        self._outlook = ForecastTable.of(request, slots)
        self._tariff = SlotCosts.of(self._outlook, part.table, Objective())

    def plans(self, dues_h: Sequence[float], weights: int) -> Iterator[Segments]:
        """The cheapest plan for each due time and weight that keeps all the job's limits."""
        mean_usd: float | None = None
        for due_h in dues_h:
            for weight in (0.0, *np.geomspace(MIN_WEIGHT, MAX_WEIGHT, weights - 1).tolist()):
                if time.perf_counter() > self._stop_at:
                    return
                found = self._cheapest(due_h, Objective(usd_per_kwh=weight * (mean_usd or 0.0)))
                if found is None:
                    continue
                if mean_usd is None:
                    mean_usd = sum(s.usd for s in found) / max(sum(s.kwh for s in found), 1e-9)
                yield found

    def _cheapest(self, due_h: float, objective: Objective) -> Segments | None:
        demand = replace(self._part.demand, due_h=due_h)
        part = part_with_objective(replace(self._part, demand=demand), objective)
        request = with_objective(self._request, objective)
        menu = Menus(request, [part], self._outlook, self._capacity)[0]
        response = cheapest_schedule(menu)
        if len(menu.work) > 1:
            response = cheaper_response(response, cheapest_staged_schedule(menu))
        if response is None:
            return None
        segments = segments_of(part, self._tariff, response.schedule, self._outlook.slots)
        try:
            verify(part, segments)
        except SolverError:
            return None
        return segments
