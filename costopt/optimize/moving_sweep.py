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
from costopt.optimize.aims import aimed, aimed_part
from costopt.optimize.fleet.capacity import Capacity
from costopt.optimize.fleet.handover import cheapest_in_stages
from costopt.optimize.fleet.menus import Menus
from costopt.optimize.fleet.response import better, cheapest
from costopt.optimize.fleet.solve import fleet_slots
from costopt.optimize.job_part import JobPart
from costopt.optimize.layout import Segment, segments_of, verify
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import shared_limits
from costopt.optimize.tariff import Outlook, Tariff

LEAST_WEIGHT, MOST_WEIGHT = 0.02, 50.0
"""Weights between the ends: a kWh counts from so little to so much of what one costs on average."""

Segments = tuple[Segment, ...]


def moves(request: PlanRequest, part: JobPart) -> bool:
    """Whether the job has to be planned over slots, since prices move."""
    pools = {offer.pool for offer in part.table.offers}
    return not pools.isdisjoint(request.price_forecasts)


class MovingSweep:
    """Finds plans of ``part`` until ``stop_at`` of the performance counter."""

    def __init__(self, request: PlanRequest, part: JobPart, stop_at: float) -> None:
        self._request, self._part, self._stop_at = request, part, stop_at
        slots = fleet_slots(request, [part.demand])
        self._capacity = Capacity(request, slots, shared_limits(request))
        self._outlook = Outlook.of(request, slots)
        self._tariff = Tariff.of(self._outlook, part.table, Objective())

    def plans(self, dues_h: Sequence[float], weights: int) -> Iterator[Segments]:
        """The cheapest plan for each due time and weight that keeps all the job's limits."""
        mean_usd: float | None = None
        for due_h in dues_h:
            for weight in (0.0, *np.geomspace(LEAST_WEIGHT, MOST_WEIGHT, weights - 1).tolist()):
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
        part = aimed_part(replace(self._part, demand=demand), objective)
        request = aimed(self._request, objective)
        menu = Menus(request, [part], self._outlook, self._capacity)[0]
        response = cheapest(menu)
        if len(menu.work) > 1:
            response = better(response, cheapest_in_stages(menu))
        if response is None:
            return None
        segments = segments_of(part, self._tariff, response.schedule, self._outlook.slots)
        try:
            verify(part, segments)
        except SolverError:
            return None
        return segments
