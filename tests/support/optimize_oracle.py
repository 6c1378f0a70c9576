"""The compact time-expanded program, straight in PuLP: slow, and right by inspection.

Hourly slots t of L hours. Per job, slot, stage q and choice c (a gang under a cap): x, paid hours
of work. Per job, slot and gang: ``on``, and ``carry``, the gang runs on from the slot before, so
that on − carry is a start, which takes δ hours of the slot and costs money.

``exclusive``: a slot belongs to one choice for one stage, and a gang that runs on has filled its
slot. This is a plan that can be carried out, so the optimum is one that a planner must reach.
Otherwise choices mix within a slot, stages change without a start, a start may lie partly in the
two slots before, and what jobs share is held on average over a slot. No planner gets below that
optimum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pulp

from costopt.domain.job import Job
from costopt.domain.view import JobView
from costopt.optimize.request import PlanRequest
from tests.support.fleet_options import (
    BELIEF_H,
    Choice,
    Parts,
    Stage,
    choices_of,
    edges_of,
    fits_room,
    launched,
    limits_of,
    living_of,
    load,
    stages_of,
    window_of,
)

Gang = tuple[Parts, int]
"""The nodes, and the stage that they are started for; −1 where stages change without a start."""


def optimum_usd(
    request: PlanRequest, *, exclusive: bool, max_usd: float | None = None
) -> float | None:
    """The least objective of all jobs together, None where there is no plan.

    ``max_usd`` is the most dollars of all jobs together.
    """
    return _Program(request, exclusive, max_usd).solve()


@dataclass
class _Cell:
    """One job in one slot."""

    begin_h: float
    hours: float
    living: Parts
    x: dict[tuple[int, int], pulp.LpVariable] = field(default_factory=dict)
    on: dict[Gang, pulp.LpVariable] = field(default_factory=dict)
    carry: dict[Gang, pulp.LpVariable] = field(default_factory=dict)
    starting_h: dict[Gang, pulp.LpAffineExpression] = field(default_factory=dict)

    def starts(self, gang: Gang) -> pulp.LpAffineExpression:
        """1 where the gang starts here."""
        return self.on[gang] - self.carry.get(gang, 0)


class _Program:
    def __init__(self, request: PlanRequest, exclusive: bool, max_usd: float | None) -> None:
        self._request, self._exclusive = request, exclusive
        self._usd: list[pulp.LpAffineExpression] = []
        self._problem = pulp.LpProblem("oracle", pulp.LpMinimize)
        self._cost: list[pulp.LpAffineExpression] = []
        self._slots = list(pairwise(edges_of(request)))
        self._loads: dict[tuple[int, int], list[pulp.LpAffineExpression]] = defaultdict(list)
        self._rooms: dict[tuple[str, int], list[pulp.LpAffineExpression]] = defaultdict(list)
        for number, view in enumerate(request.jobs):
            self._add_job(f"j{number}", view)
        self._add_limits()
        if max_usd is not None:
            self._problem += pulp.lpSum(self._usd) <= max_usd
        self._problem.setObjective(pulp.lpSum(self._cost))

    def solve(self) -> float | None:
        self._problem.solve(pulp.HiGHS(msg=False, gapRel=1e-7, threads=1))
        if self._problem.sol_status != pulp.LpSolutionOptimal:
            return None
        return float(pulp.value(self._problem.objective))

    def _add_job(self, name: str, view: JobView) -> None:
        job, living = view.job, living_of(view)
        choices, stages = choices_of(self._request, job), stages_of(job)
        begin_h, due_h = window_of(self._request, job)
        cells: dict[int, _Cell] = {}
        for t, (a, b) in enumerate(self._slots):
            if a >= begin_h - 1e-9 and b <= due_h + 1e-9 and b > a:
                cells[t] = self._add_cell(f"{name}_{t}", _Cell(a, b - a, living), choices, stages)
        for t, cell in cells.items():
            if t - 1 in cells:
                self._add_carry(f"{name}_{t}", cells[t - 1].on, cell)
            elif cell.begin_h == 0:
                self._add_carry(f"{name}_{t}", {g: 1 for g in cell.on if g[0] == living}, cell)
        for t in cells:
            self._add_starts(f"{name}_{t}", cells, t, choices)
        for t, cell in cells.items():
            self._add_time(cell, cells.get(t + 1), choices)
            self._add_cost(t, cell, choices)
        self._add_work(name, cells, choices, stages)
        self._add_budget(job, cells, choices)

    def _gang(self, choice: Choice, stage: int) -> Gang:
        return choice.parts, stage if self._exclusive else -1

    def _add_cell(
        self, name: str, cell: _Cell, choices: list[Choice], stages: list[Stage]
    ) -> _Cell:
        used = []
        for c, choice in enumerate(choices):
            if not fits_room(self._request, choice.parts, cell.living, cell.begin_h):
                continue
            for q, stage in enumerate(stages):
                if not stage.min_nodes <= choice.nodes <= stage.max_nodes:
                    continue
                gang = self._gang(choice, q)
                if gang not in cell.on:
                    cell.on[gang] = self._problem.add_variable(
                        f"on_{name}_{len(cell.on)}", cat="Binary"
                    )
                x = cell.x[q, c] = self._problem.add_variable(f"x_{name}_{q}_{c}", 0, cell.hours)
                if self._exclusive:
                    used.append(self._problem.add_variable(f"u_{name}_{q}_{c}", cat="Binary"))
                    self._problem += x <= cell.hours * used[-1]
                    self._problem += used[-1] <= cell.on[gang]
                else:
                    self._problem += x <= cell.hours * cell.on[gang]
        if self._exclusive:
            self._problem += pulp.lpSum(used) <= 1
            self._problem += pulp.lpSum(cell.on.values()) <= 1
        return cell

    def _add_carry(self, name: str, before: Mapping[Gang, object], cell: _Cell) -> None:
        """What was on before may run on; of that which is 1, it lives now."""
        for number, gang in enumerate(cell.on):
            if gang in before:
                carry = self._problem.add_variable(f"k_{name}_{number}", cat="Binary")
                cell.carry[gang] = carry
                self._problem += carry <= cell.on[gang]
                self._problem += carry <= before[gang]
        self._problem += pulp.lpSum(cell.carry.values()) <= 1

    def _add_starts(
        self, name: str, cells: dict[int, _Cell], t: int, choices: list[Choice]
    ) -> None:
        """Where the hours of the starts of slot t lie."""
        start_h = {c.parts: c.start_h for c in choices}
        where = [t] if self._exclusive else [at for at in (t, t - 1, t - 2) if at in cells]
        for number, gang in enumerate(cells[t].on):
            hours = start_h[gang[0]] * cells[t].starts(gang)
            shares = [
                self._problem.add_variable(f"s_{name}_{number}_{at}", 0, cells[at].hours)
                for at in where
            ]
            self._problem += pulp.lpSum(shares) == hours
            for at, share in zip(where, shares, strict=True):
                held = cells[at].starting_h
                held[gang] = held.get(gang, 0) + share

    def _add_time(self, cell: _Cell, after: _Cell | None, choices: list[Choice]) -> None:
        work = self._work_of(cell, choices)
        held = [*work.values(), *cell.starting_h.values()]
        self._problem += pulp.lpSum(held) <= cell.hours
        for gang in cell.on:
            runs_on = after.carry.get(gang) if after is not None else None
            if runs_on is None:
                continue
            if self._exclusive:
                hours = work[gang] + cell.starting_h[gang]
                self._problem += hours >= cell.hours * runs_on
            elif gang in cell.carry:
                self._problem += work[gang] >= cell.hours * (runs_on + cell.carry[gang] - 1)

    def _work_of(self, cell: _Cell, choices: list[Choice]) -> dict[Gang, pulp.LpAffineExpression]:
        """Paid hours of each gang, whatever its cap."""
        work = {gang: pulp.LpAffineExpression() for gang in cell.on}
        for (q, c), x in cell.x.items():
            gang = self._gang(choices[c], q)
            work[gang] = work[gang] + x
        return work

    def _add_cost(self, t: int, cell: _Cell, choices: list[Choice]) -> None:
        request, at_h = self._request, cell.begin_h
        lead = {choice.parts: choice for choice in choices}
        work = self._work_of(cell, choices)
        for (_, c), x in cell.x.items():
            self._cost.append(choices[c].score_per_h(request, at_h) * x)
        for gang, hours in cell.starting_h.items():
            self._cost.append(lead[gang[0]].starting_score_per_h(request, at_h) * hours)
        for gang, on in cell.on.items():
            transfer = request.policy.objective.usd * lead[gang[0]].start_usd
            self._cost.append(transfer * cell.starts(gang))
            share = on if self._exclusive else work[gang] * (1 / cell.hours)
            for n, (quota, _) in enumerate(limits_of(request)):
                self._loads[n, t].append(load(request, quota, gang[0]) * share)
            fresh = launched(gang[0], cell.living) if at_h < BELIEF_H else {}
            for pool, nodes in fresh.items():
                self._rooms[str(pool), t].append(nodes * share)

    def _add_work(
        self, name: str, cells: dict[int, _Cell], choices: list[Choice], stages: list[Stage]
    ) -> None:
        done: list[pulp.LpAffineExpression] = [pulp.LpAffineExpression() for _ in stages]
        for t, cell in cells.items():
            for q, stage in enumerate(stages):
                done[q] = done[q] + pulp.lpSum(
                    choices[c].units_per_h / stage.units * x
                    for (own, c), x in cell.x.items()
                    if own == q
                )
            for q in range(1, len(stages)):
                begun = self._problem.add_variable(f"begun_{name}_{q}_{t}", cat="Binary")
                self._problem += begun <= done[q - 1]
                for (own, _), x in cell.x.items():
                    if own == q:
                        self._problem += x <= cell.hours * begun
        for share in done:
            self._problem += share >= 1

    def _add_budget(self, job: Job, cells: dict[int, _Cell], choices: list[Choice]) -> None:
        lead = {choice.parts: choice for choice in choices}
        usd, kwh = [], []
        for cell in cells.values():
            for (_, c), x in cell.x.items():
                usd.append(choices[c].usd_per_h(self._request, cell.begin_h) * x)
                kwh.append(choices[c].kwh_per_h * x)
            for gang, hours in cell.starting_h.items():
                choice = lead[gang[0]]
                usd.append(choice.rent_usd_per_h(self._request, cell.begin_h) * hours)
                kwh.append(choice.idle_kw * hours)
            usd.extend(lead[gang[0]].start_usd * cell.starts(gang) for gang in cell.on)
        self._usd.extend(usd)
        for most, spent in ((job.budget.max_usd, usd), (job.budget.max_kwh, kwh)):
            if most is not None:
                self._problem += pulp.lpSum(spent) <= most

    def _add_limits(self) -> None:
        most = [limit for _, limit in limits_of(self._request)]
        for (n, _), loads in self._loads.items():
            self._problem += pulp.lpSum(loads) <= most[n]
        room = {str(offer.pool): offer.nodes_available for offer in self._request.offers}
        for (pool, _), loads in self._rooms.items():
            nodes = room[pool]
            if nodes is not None:
                self._problem += pulp.lpSum(loads) <= nodes
