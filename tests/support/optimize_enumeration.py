"""The cheapest plan of one job with one stage, by trying everything.

Every sequence of (nothing, a choice that starts, a choice whose gang runs on) over the hourly
slots is tried. A gang that runs on has filled the slot before. What the other slots do is a
fractional knapsack: the cheapest work first.
"""

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
    fits_room,
    living_of,
    stages_of,
    window_of,
)


def cheapest_usd(request: PlanRequest) -> float | None:
    """The least objective, None where there is no plan."""
    (view,) = request.jobs
    (stage,) = stages_of(view.job)
    begin_h, due_h = window_of(request, view.job)
    slots = [
        (a, b) for a, b in pairwise(edges_of(request)) if a >= begin_h - 1e-9 and b <= due_h + 1e-9
    ]
    choices = choices_of(request, view.job)
    search = _Search(request, choices, slots, stage.units, living_of(view))
    search.go(0, None, 0.0, stage.units, ())
    return None if math.isinf(search.best_usd) else search.best_usd


@dataclass(frozen=True)
class _Piece:
    """Up to ``hours`` of a choice in a slot."""

    choice: Choice
    hours: float
    usd_per_h: float

    @property
    def units(self) -> float:
        return self.hours * self.choice.units_per_h

    @property
    def usd_per_unit(self) -> float:
        return self.usd_per_h / self.choice.units_per_h


class _Search:
    def __init__(
        self,
        request: PlanRequest,
        choices: list[Choice],
        slots: list[tuple[float, float]],
        units: float,
        living: Parts,
    ) -> None:
        self.best_usd = math.inf
        self._slots = slots
        self._rows = [
            [
                (c, c.score_per_h(request, a), c.start_score(request, a))
                for c in choices
                if fits_room(request, c.parts, living, a)
            ]
            for a, _ in slots
        ]
        self._units, self._living = units, living

    def go(
        self, t: int, last: _Piece | None, usd: float, left: float, loose: tuple[_Piece, ...]
    ) -> None:
        """From slot t on; ``last`` ran in the slot before and may run on; ``loose`` are others."""
        if usd >= self.best_usd:
            return
        idle = loose if last is None else (*loose, last)
        if t == len(self._slots):
            self._fill(usd, left, idle)
            return
        self.go(t + 1, None, usd, left, idle)
        begin_h, end_h = self._slots[t]
        for choice, usd_per_h, start_usd in self._rows[t]:
            hours = end_h - begin_h
            if choice.start_h < hours:
                piece = _Piece(choice, hours - choice.start_h, usd_per_h)
                self.go(t + 1, piece, usd + start_usd, left, idle)
            if begin_h == 0 and choice.parts == self._living:
                self.go(t + 1, _Piece(choice, hours, usd_per_h), usd, left, idle)
            if last is not None and last.choice.parts == choice.parts:
                full_usd = usd + last.hours * last.usd_per_h
                on = _Piece(choice, hours, usd_per_h)
                self.go(t + 1, on, full_usd, left - last.units, loose)

    def _fill(self, usd: float, left: float, loose: tuple[_Piece, ...]) -> None:
        for piece in sorted(loose, key=lambda p: p.usd_per_unit):
            if left <= 0:
                break
            share = min(1.0, left / piece.units)
            usd += share * piece.hours * piece.usd_per_h
            left -= share * piece.units
        if left <= 1e-9 * self._units:
            self.best_usd = min(self.best_usd, usd)
