"""The mixed-integer program: which configuration each job runs in each slot, and for how long.

Sets: jobs j, their options o = (stage, configuration), slots t of L_t hours inside the job's time.
Variables, per job, option and slot:
    x   paid hours of work                      0 ≤ x, continuous
    u   the option is used                      binary
    k   it runs on from the slot before         binary; at the first slot: the living gang runs on
so u − k is a start. Per paid hour an option does ``paid_units_per_hour`` units, costs
``score_per_hour`` and holds ``stretch`` hours of the calendar, which is more than it is expected to
take by the margin that the policy's on-time probability asks for. A start holds and pays δ hours.

min   Σ score·x + start_score·(u − k)
work  Σ_t,o of stage  units·x ≥ W_stage
time  Σ_o stretch·x + δ·(u − k) ≤ L_t  (a living gang: what is left of δ)
link  x ≤ most·u          most: what fits the slot, or the stage's work if that is less
carry k ≤ u;  k ≤ u of the slot before;  Σ_o k ≤ 1;  k_t + k_t+1 = 2 leaves room for no other option
order u of a later stage ≤ the share of the stage before it done by then
money Σ usd ≤ the job's and the policy's budget; Σ kwh ≤ the job's
Where jobs share a limit (``shared``), a slot is given to one option of a job as a whole:
      Σ_o u ≤ 1;  an option that runs on fills its slot;  Σ_j,o load·u ≤ limit in each slot.
Work is counted in shares of the stage, x in shares of its most, money in shares of ``unit_usd``, so
that the solver sees numbers near 1 whatever the units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.prune import Option
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import SharedLimit, totals_limit_usd
from costopt.optimize.slots import Slot
from costopt.optimize.solver import LinearModel, Solution

WORK_MARGIN = 2e-6
"""The share of the work planned on top, so that the solver's tolerance never leaves work undone."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """One job of the model."""

    demand: Demand
    table: ConfigurationTable
    options: list[Option]


@dataclass(frozen=True, slots=True)
class Use:
    """An option in a slot, as solved: hours of work, whether it starts there or runs on."""

    option: Option
    slot: int
    hours: float
    carried_in: bool
    carried_out: bool


@dataclass(frozen=True, slots=True)
class _Cell:
    """The variables of one option in one slot; x counts in shares of ``hours``, its most."""

    x: int
    hours: float
    u: int
    k: int | None


class PlanModel:
    """Builds the program for ``parts``; ``exclusive`` where they share limits.

    ``room`` is what is left of (limit number, slot) where other jobs are already placed.
    """

    def __init__(
        self,
        request: PlanRequest,
        parts: list[JobPart],
        slots: tuple[Slot, ...],
        limits: tuple[SharedLimit, ...] = (),
        *,
        exclusive: bool = False,
        room: Mapping[tuple[int, int], float] | None = None,
    ) -> None:
        self._request, self._parts, self._slots = request, parts, slots
        self._limits, self._exclusive, self._room = limits, exclusive, room
        self.unit_usd = _unit_usd(parts)
        self._model = LinearModel("plan")
        self._cells: list[dict[tuple[int, int], _Cell]] = []
        for part in parts:
            self._cells.append(self._add_cells(part))
        for part, cells in zip(parts, self._cells, strict=True):
            self._add_work(part, cells)
            self._add_time(part, cells)
            self._add_carry(part, cells)
            self._add_order(part, cells)
            self._add_budget(part, cells)
        self._add_total_budget()
        self._add_shared()

    def solve(self, *, time_limit_s: float, gap: float, solver: str | None = None) -> Solution:
        """Solve; the objective is in shares of ``unit_usd``."""
        return self._model.solve(time_limit_s=time_limit_s, gap=gap, solver=solver)

    def uses(self, solution: Solution) -> list[list[Use]]:
        """What each job runs, by slot and option."""
        values = solution.values
        found: list[list[Use]] = []
        for part, cells in zip(self._parts, self._cells, strict=True):
            uses: list[Use] = []
            for (o, t), cell in sorted(cells.items(), key=lambda item: (item[0][1], item[0][0])):
                if values[cell.u] < 0.5:
                    continue
                after = cells.get((o, t + 1))
                uses.append(
                    Use(
                        part.options[o],
                        t,
                        max(0.0, values[cell.x]) * cell.hours,
                        cell.k is not None and values[cell.k] > 0.5,
                        after is not None and after.k is not None and values[after.k] > 0.5,
                    )
                )
            found.append(uses)
        return found

    def _add_cells(self, part: JobPart) -> dict[tuple[int, int], _Cell]:
        cells: dict[tuple[int, int], _Cell] = {}
        table, unit = part.table, self.unit_usd
        for t, slot in enumerate(self._slots):
            if not slot.within(part.demand):
                continue
            for o, option in enumerate(part.options):
                row = option.row
                if slot.near and not (table.now[row] or table.running[row]):
                    continue
                start = float(table.start_score[row]) / unit
                runs_on = (o, t - 1) in cells or (
                    t == 0 and slot.start_h <= 0 and bool(table.running[row])
                )
                hours = _most_hours(part, option, slot)
                cells[o, t] = _Cell(
                    self._model.variable(1, cost=hours * float(table.score_per_hour[row]) / unit),
                    hours,
                    self._model.variable(1, cost=start, integer=True),
                    self._carry_variable(part, start, first=(o, t - 1) not in cells)
                    if runs_on
                    else None,
                )
        return cells

    def _carry_variable(self, part: JobPart, start: float, *, first: bool) -> int:
        """A gang that lives now pays only what is left of its start-up."""
        left = part.demand.starting_h / max(_start_h(part), 1e-12) if first else 0.0
        return self._model.variable(1, cost=-start * (1 - left), integer=True)

    def _add_work(self, part: JobPart, cells: dict[tuple[int, int], _Cell]) -> None:
        for number, stage in enumerate(part.demand.stages):
            terms = {
                cell.x: cell.hours
                * float(part.table.paid_units_per_hour[part.options[o].row])
                / stage.units
                for (o, _), cell in cells.items()
                if part.options[o].stage == number
            }
            self._model.at_least(terms, 1 + WORK_MARGIN)

    def _add_time(self, part: JobPart, cells: dict[tuple[int, int], _Cell]) -> None:
        delta = _start_h(part)
        for t, slot in enumerate(self._slots):
            terms: dict[int, float] = {}
            for (o, at), cell in cells.items():
                if at != t:
                    continue
                terms[cell.x] = float(part.table.stretch[part.options[o].row]) * cell.hours
                terms[cell.u] = delta
                if cell.k is not None:
                    living = (o, t - 1) not in cells
                    terms[cell.k] = -(delta - (part.demand.starting_h if living else 0.0))
                self._model.at_most({cell.x: 1, cell.u: -1}, 0)
            if terms:
                self._model.at_most(terms, slot.hours)

    def _add_carry(self, part: JobPart, cells: dict[tuple[int, int], _Cell]) -> None:
        for t in range(len(self._slots)):
            here = {o: cell for (o, at), cell in cells.items() if at == t}
            carried = {cell.k: 1.0 for cell in here.values() if cell.k is not None}
            if carried:
                self._model.at_most(carried, 1)
            if self._exclusive and here:
                self._model.at_most({cell.u: 1.0 for cell in here.values()}, 1)
            for o, cell in here.items():
                if cell.k is not None:
                    self._add_carry_of(part, cells, o, t, here)

    def _add_carry_of(
        self,
        part: JobPart,
        cells: dict[tuple[int, int], _Cell],
        o: int,
        t: int,
        here: dict[int, _Cell],
    ) -> None:
        k = here[o].k
        assert k is not None
        self._model.at_most({k: 1, here[o].u: -1}, 0)
        before = cells.get((o, t - 1))
        if before is not None:
            self._model.at_most({k: 1, before.u: -1}, 0)
            if self._exclusive:
                self._add_full_slot(part, o, t - 1, before, k)
        after = cells.get((o, t + 1))
        others = {cell.u: 1.0 for other, cell in here.items() if other != o}
        if after is not None and after.k is not None and others and not self._exclusive:
            room = float(len(others))
            self._model.at_most(others | {k: room, after.k: room}, 2 * room)

    def _add_full_slot(self, part: JobPart, o: int, t: int, cell: _Cell, runs_on: int) -> None:
        """An option that runs on into the next slot has filled this one."""
        row, hours = part.options[o].row, self._slots[t].hours
        delta = min(_start_h(part), hours)
        held = float(part.table.stretch[row]) * cell.hours
        terms = {cell.x: held, cell.u: delta, runs_on: -hours}
        if cell.k is not None:
            terms[cell.k] = -delta
        self._model.at_least(terms, -1e-9)

    def _add_order(self, part: JobPart, cells: dict[tuple[int, int], _Cell]) -> None:
        for (o, t), cell in cells.items():
            stage = part.options[o].stage
            if stage == 0:
                continue
            units = part.demand.stages[stage - 1].units
            done = {
                earlier.x: earlier.hours
                * float(part.table.paid_units_per_hour[part.options[p].row])
                / units
                for (p, at), earlier in cells.items()
                if at <= t and part.options[p].stage == stage - 1
            }
            self._model.at_least(done | {cell.u: -1.0}, 0)

    def _add_budget(self, part: JobPart, cells: dict[tuple[int, int], _Cell]) -> None:
        budget, table = part.demand.job.budget, part.table
        if budget.max_usd is not None:
            terms = self._sum(part, cells, table.usd_per_hour, table.usd_per_start)
            self._at_most(terms, budget.max_usd)
        if budget.max_kwh is not None:
            terms = self._sum(part, cells, table.kwh_per_hour, table.kwh_per_start)
            self._at_most(terms, budget.max_kwh)

    def _add_total_budget(self) -> None:
        total = totals_limit_usd(self._request)
        if total is None:
            return
        terms: dict[int, float] = {}
        for part, cells in zip(self._parts, self._cells, strict=True):
            terms |= self._sum(part, cells, part.table.usd_per_hour, part.table.usd_per_start)
        self._at_most(terms, total[1])

    def _at_most(self, terms: dict[int, float], most: float) -> None:
        """A budget in shares of itself: coefficients near 1 whatever its size."""
        scale = max(abs(most), 1e-6 * max(map(abs, terms.values()), default=0.0), 1e-12)
        self._model.at_most({i: a / scale for i, a in terms.items()}, most / scale)

    def _sum(
        self,
        part: JobPart,
        cells: dict[tuple[int, int], _Cell],
        per_hour: Array,
        per_start: Array,
    ) -> dict[int, float]:
        terms: dict[int, float] = {}
        for (o, t), cell in cells.items():
            row = part.options[o].row
            terms[cell.x] = cell.hours * float(per_hour[row])
            terms[cell.u] = float(per_start[row])
            if cell.k is not None:
                living = (o, t - 1) not in cells
                left = part.demand.starting_h / max(_start_h(part), 1e-12) if living else 0.0
                terms[cell.k] = -float(per_start[row]) * (1 - left)
        return terms

    def _add_shared(self) -> None:
        for n, limit in enumerate(self._limits):
            for t, slot in enumerate(self._slots):
                if limit.near and not slot.near:
                    continue
                terms: dict[int, float] = {}
                for part, cells in zip(self._parts, self._cells, strict=True):
                    for (o, at), cell in cells.items():
                        if at == t:
                            row = part.options[o].row
                            terms[cell.u] = limit.load(self._request, part.demand, part.table, row)
                if any(terms.values()):
                    most = limit.most if self._room is None else self._room[n, t]
                    self._at_most(terms, max(0.0, most))


def _most_hours(part: JobPart, option: Option, slot: Slot) -> float:
    """The paid hours that fit the slot, or that the stage needs where that is less."""
    table, row = part.table, option.row
    needed = part.demand.stages[option.stage].units / float(table.paid_units_per_hour[row])
    return min(slot.hours / float(table.stretch[row]), needed * (1 + 2 * WORK_MARGIN))


def _start_h(part: JobPart) -> float:
    return part.demand.job.overhead_s / 3600


def _unit_usd(parts: list[JobPart]) -> float:
    """The typical cost of the whole: the cheapest configuration of each job by itself."""
    total = 0.0
    for part in parts:
        rows = [option.row for option in part.options]
        if rows:
            per_unit = part.table.score_per_hour[rows] / part.table.paid_units_per_hour[rows]
            total += float(per_unit.min()) * part.demand.units
    return total if total > 0 else 1.0
