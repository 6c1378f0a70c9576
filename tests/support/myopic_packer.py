"""Slot-by-slot packing: each hour by itself, without a look at later prices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from costopt.optimize.request import PlanRequest
from tests.support.fleet_options import (
    Choice,
    Parts,
    choices_of,
    edges_of,
    limits_of,
    living_of,
    load,
    window_of,
)


@dataclass
class _Gone:
    """How far a job is."""

    left: float
    usd: float = 0.0
    parts: Parts = ()


def packed_usd(request: PlanRequest) -> float | None:
    """What the jobs of one stage come to, None where one ends late.

    In each hour the jobs take their turn, the one with the least slack first. Each takes the
    cheapest gang per unit of work, its start spread over the work of the hour, among those within
    what the quotas leave that keep the pace that its deadline asks for; where none does, the
    fastest.
    """
    gone = {v.job.name: _Gone(v.job.work.amount, parts=living_of(v)) for v in request.jobs}
    choices = {view.job.name: choices_of(request, view.job) for view in request.jobs}
    for begin_h, end_h in pairwise(edges_of(request)):
        used: list[Parts] = []
        for job in sorted(
            (view.job for view in request.jobs), key=lambda j: window_of(request, j)[1]
        ):
            own = gone[job.name]
            release_h, due_h = window_of(request, job)
            if own.left <= 0 or begin_h < release_h - 1e-9 or end_h > due_h + 1e-9:
                own.parts = ()
                continue
            pace = own.left / (due_h - begin_h)
            chosen = _choose(request, choices[job.name], own, used, pace, (begin_h, end_h))
            own.parts = () if chosen is None else chosen.parts
            if chosen is not None:
                used.append(chosen.parts)
    if any(own.left > 1e-9 for own in gone.values()):
        return None
    return sum(own.usd for own in gone.values())


def _choose(
    request: PlanRequest,
    choices: list[Choice],
    own: _Gone,
    used: list[Parts],
    pace: float,
    slot: tuple[float, float],
) -> Choice | None:
    """Picks a gang for the hour and counts what it does and costs."""
    begin_h, end_h = slot
    best: tuple[tuple[bool, float], Choice, float, float] | None = None
    for choice in choices:
        if not _fits(request, choice, used, begin_h):
            continue
        starts = choice.parts != own.parts
        max_h = end_h - begin_h - (choice.start_h if starts else 0.0)
        if max_h <= 0:
            continue
        hours = min(max_h, own.left / choice.units_per_h)
        units = hours * choice.units_per_h
        usd = hours * choice.score_per_h(request, begin_h)
        usd += choice.start_score(request, begin_h) if starts else 0.0
        keeps = units >= min(own.left, pace * (end_h - begin_h)) * (1 - 1e-9)
        rank = (not keeps, usd / units if keeps else -units)
        if best is None or rank < best[0]:
            best = rank, choice, units, usd
    if best is None:
        return None
    _, choice, units, usd = best
    own.left = 0.0 if math.isclose(own.left, units) else own.left - units
    own.usd += usd
    return choice


def _fits(request: PlanRequest, choice: Choice, used: list[Parts], at_h: float) -> bool:
    for quota, most in limits_of(request):
        if sum(load(request, quota, parts) for parts in (*used, choice.parts)) > most:
            return False
    together: dict[str, int] = {}
    for pool, nodes in (part for parts in (*used, choice.parts) for part in parts):
        together[str(pool)] = together.get(str(pool), 0) + nodes
    room = {str(offer.pool): offer.nodes_available for offer in request.offers}
    return at_h >= 1.0 or all(
        nodes <= (math.inf if room[name] is None else room[name] or 0)
        for name, nodes in together.items()
    )
