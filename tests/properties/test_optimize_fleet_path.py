"""A job's best path at given prices of work against the best of all sequences."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.optimize.colgen.menu import JobMenu, PricingDuals
from costopt.optimize.colgen.pricing import PricingSolution, solve_pricing
from costopt.optimize.planner import prepare
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.slots import Slot
from tests.support.fleet_options import (
    BELIEF_H,
    Choice,
    choices_of,
    edges_of,
    fits_room,
    living_of,
    window_of,
)
from tests.support.fleet_requests import lone_jobs

SlotH = tuple[float, float]


def slots_of(request: PlanRequest) -> list[SlotH]:
    """Hours of the job's own window."""
    begin_h, due_h = window_of(request, request.jobs[0].job)
    edges = [edge for edge in edges_of(request) if begin_h - 1e-9 <= edge <= due_h + 1e-9]
    return list(pairwise(edges))


def planned(request: PlanRequest, usd_per_unit: float) -> PricingSolution:
    """The planner's path."""
    (part,), _ = prepare(request)
    slots = [Slot(a, b, b <= BELIEF_H + 1e-9) for a, b in slots_of(request)]
    forecast_table = ForecastTable.of(request, slots)
    slot_costs = SlotCosts.of(forecast_table, part.table, request.policy.objective)
    menu = JobMenu.of(part, forecast_table, slot_costs, np.arange(len(part.table)))
    return solve_pricing(menu, PricingDuals(np.array([usd_per_unit])))


def best_value(request: PlanRequest, usd_per_unit: float) -> float:
    """The most that any sequence of whole slots is worth; 0 is to do nothing."""
    slots, living = slots_of(request), living_of(request.jobs[0])
    choices = choices_of(request, request.jobs[0].job)

    def worth(choice: Choice, slot: SlotH, *, starts: bool) -> float:
        hourly = usd_per_unit * choice.units_per_h - choice.score_per_h(request, slot[0])
        whole = (slot[1] - slot[0]) * hourly
        lost = choice.start_h * hourly + choice.start_score(request, slot[0])
        return whole - lost if starts else whole

    def onward(t: int, last: Choice | None) -> float:
        if t == len(slots):
            return 0.0
        best, (begin_h, _) = onward(t + 1, None), slots[t]
        for choice in choices:
            if not fits_room(request, choice.parts, living, begin_h):
                continue
            here = last is not None and last.parts == choice.parts
            here |= begin_h == 0 and choice.parts == living
            for starts in (True, False) if here else (True,):
                best = max(best, worth(choice, slots[t], starts=starts) + onward(t + 1, choice))
        return best

    return onward(0, None)


@settings(max_examples=100, deadline=None)
@given(lone_jobs(), st.floats(-1.0, 1.5))
def test_no_sequence_is_worth_more_than_the_best_path(
    request: PlanRequest, magnitude: float
) -> None:
    choices = choices_of(request, request.jobs[0].job)
    if not choices:
        return
    typical = min(c.score_per_h(request, 0.0) / c.units_per_h for c in choices)
    usd_per_unit = typical * math.exp(magnitude)
    expected = best_value(request, usd_per_unit)
    assert planned(request, usd_per_unit).value == pytest.approx(expected, rel=1e-6, abs=1e-9)
