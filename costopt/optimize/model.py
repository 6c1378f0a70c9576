"""The mixed-integer program: which configuration each job runs in each slot, and for how long.

Sets: jobs j, their options o = (stage, configuration), groups h = (stage, gang) of options that
differ only in a power cap, slots t of L_t hours inside the job's time. Variables:
    x_ot   paid hours of work                   0 ≤ x, continuous
    u_ht   the gang is used                     binary
    k_ht   it runs on from the slot before      binary; at the first slot: the living gang runs on
so u − k is a start. Per paid hour an option does ``paid_units_per_hour · pace`` units, costs
``score_t`` (its tariff in the slot) and holds ``stretch`` hours of the calendar, which is more than
it is expected to take by the margin that the policy's on-time probability asks for. A start holds
and pays δ = ``start_h`` hours.

min   Σ score_t·x + start_score_t·(u − k)
work  Σ_t,o of stage  units·x ≥ W_stage
time  Σ_o stretch·x + Σ_h δ·(u − k) ≤ L_t  (a living gang: the remaining part of δ)
link  Σ_o of h  x / most ≤ u          most: what fits the slot; and the same, what the stage needs
carry k ≤ u;  k ≤ Σ u of the same gang, in this stage or the one before, in the slot before;
      Σ_h k ≤ 1;  k_t + k_t+1 = 2 leaves room for no other gang
order u of a later stage ≤ the share of the stage before it done by then; k ≤ that done before;
      u of an earlier stage ≤ 1 − u of a later one in any slot before
money Σ usd ≤ the job's and the policy's budgets; Σ kwh ≤ the job's; Σ score ≤ each ceiling
Where slots are exclusive, as where prices vary or jobs share a limit (``shared``), a slot is given
to one gang of a job as a whole:
      Σ_h u ≤ 1;  a gang that runs on fills its slot;  Σ_j,h load·u ≤ limit in each slot;
      of a stage that may not pause: Σ_t (begins in t) ≤ 1, begins ≥ Σ_h u_t − Σ_h u_t−1.
Elsewhere only unavailable capacity could make it pause: the plan is checked for that.
Work is counted in shares of the stage, x in shares of its most, money in shares of ``unit_usd``, so
that the solver sees numbers near 1 whatever the units.

``PlanModel`` builds the program. ``add_order`` adds the rows of stages that follow one another,
``add_no_pause_rows`` those of stages that may not wait for capacity once they have begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from costopt.optimize.limits import SharedLimit, total_limits
from costopt.optimize.planned_job import GangGroup, ModelVariables, PlannedJob
from costopt.optimize.pruning import StageConfiguration
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import SlotUse, uses_of
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.slots import Slot
from costopt.optimize.solver import LinearModel, Solution

WORK_MARGIN = 2e-6
"""The share of the work planned on top, so that the solver's tolerance never leaves work undone."""


class PlanModel:
    """The builder of the program for ``parts``; ``exclusive`` where slots are given as a whole."""

    def __init__(
        self,
        request: PlanRequest,
        parts: list[PlannedJob],
        slots: tuple[Slot, ...],
        limits: tuple[SharedLimit, ...] = (),
        *,
        exclusive: bool = False,
    ) -> None:
        self._request, self._parts, self._slots = request, parts, slots
        self._limits, self._exclusive = limits, exclusive
        self.unit_usd = _unit_usd(parts)
        self._model = LinearModel("plan")
        outlook = ForecastTable.of(request, slots)
        objective = request.policy.objective
        self._tariffs = [SlotCosts.of(outlook, part.table, objective) for part in parts]
        self._cells = [
            self._add_cells(part, tariff) for part, tariff in zip(parts, self._tariffs, strict=True)
        ]
        for part, tariff, cells in zip(parts, self._tariffs, self._cells, strict=True):
            self._add_work(part, cells)
            self._add_time(part, cells)
            self._add_carry(part, cells)
            add_order(self._model, part, cells, slots)
            if exclusive:
                add_no_pause_rows(self._model, part, cells, slots)
            self._add_budget(part, tariff, cells)
        self._add_total_budgets()
        self._add_shared()

    def solve(self, *, time_limit_s: float, gap: float, solver: str | None = None) -> Solution:
        """Return the solution; its objective is in shares of ``unit_usd``."""
        return self._model.solve(time_limit_s=time_limit_s, gap=gap, solver=solver)

    def uses(self, solution: Solution) -> list[list[SlotUse]]:
        """Return what each job runs, by slot and option."""
        return [
            uses_of(part, cells, solution.values)
            for part, cells in zip(self._parts, self._cells, strict=True)
        ]

    def _add_cells(self, part: PlannedJob, tariff: SlotCosts) -> ModelVariables:
        cells = ModelVariables()
        rows = np.array([option.row for option in part.options], dtype=np.int64)
        usable = tariff.usable(part.demand, rows)
        score = tariff.score_per_hour(rows) / self.unit_usd
        for t, slot in enumerate(self._slots):
            for o, option in enumerate(part.options):
                if not usable[t, o] or (part.cells is not None and (o, t) not in part.cells):
                    continue
                hours = _max_hours(part, option, slot)
                cells.hours[o, t] = hours
                cells.x[o, t] = self._model.variable(1, cost=hours * float(score[t, o]))
                cells.members.setdefault((part.group(option), t), []).append(o)
        self._add_gangs(part, tariff, cells)
        return cells

    def _add_gangs(self, part: PlannedJob, tariff: SlotCosts, cells: ModelVariables) -> None:
        rows = np.array([option.row for option in part.options], dtype=np.int64)
        start_score = tariff.start_score(rows) / self.unit_usd
        for (group, t), members in sorted(cells.members.items(), key=lambda item: item[0][1]):
            row = part.options[members[0]].row
            start = float(start_score[t, members[0]])
            cells.u[group, t] = self._model.variable(1, cost=start, integer=True)
            before = list(cells.before(group, t))
            living = t == 0 and self._slots[0].start_h <= 0 and bool(part.table.running[row])
            if before or living:
                # A gang that lives now pays only the remainder of its start-up.
                paid = 1 - part.left_share(row) if living else 1.0
                cells.k[group, t] = self._model.variable(1, cost=-start * paid, integer=True)
                if living:
                    cells.living.add((group, t))

    def _add_work(self, part: PlannedJob, cells: ModelVariables) -> None:
        for number, stage in enumerate(part.demand.stages):
            terms = {
                x: cells.hours[o, t] * part.units_per_hour(part.options[o]) / stage.units
                for (o, t), x in cells.x.items()
                if part.options[o].stage == number
            }
            self._model.at_least(terms, 1 + WORK_MARGIN)

    def _add_time(self, part: PlannedJob, cells: ModelVariables) -> None:
        by_slot: dict[int, dict[int, float]] = {}
        for (o, t), x in cells.x.items():
            stretch = float(part.table.stretch[part.options[o].row])
            by_slot.setdefault(t, {})[x] = stretch * cells.hours[o, t]
        for (group, t), u in cells.u.items():
            row = part.options[cells.members[group, t][0]].row
            delta = float(part.table.start_h[row])
            by_slot[t][u] = delta
            if (group, t) in cells.k:
                left_h = part.demand.starting_h if (group, t) in cells.living else 0.0
                by_slot[t][cells.k[group, t]] = -(delta - min(left_h, delta))
            for members in self._shares(part, cells, cells.members[group, t], t):
                self._model.at_most(members | {u: -1.0 - 2 * WORK_MARGIN}, 0)
        for t, terms in by_slot.items():
            self._model.at_most(terms, self._slots[t].hours_of(part.demand))

    def _shares(
        self, part: PlannedJob, cells: ModelVariables, members: Sequence[int], t: int
    ) -> Iterator[dict[int, float]]:
        """The parts that a gang's options take of the slot's hours, and of the stage's work."""
        options = [(o, part.options[o]) for o in members]
        each_h = self._slots[t].hours_of(part.demand) / part.table.stretch
        yield {cells.x[o, t]: cells.hours[o, t] / float(each_h[one.row]) for o, one in options}
        units = part.demand.stages[options[0][1].stage].units
        yield {
            cells.x[o, t]: cells.hours[o, t] * part.units_per_hour(one) / units
            for o, one in options
        }

    def _add_carry(self, part: PlannedJob, cells: ModelVariables) -> None:
        groups_at: dict[int, list[GangGroup]] = {}
        for group, t in cells.u:
            groups_at.setdefault(t, []).append(group)
        for t, groups in groups_at.items():
            carried = {cells.k[g, t]: 1.0 for g in groups if (g, t) in cells.k}
            if carried:
                self._model.at_most(carried, 1)
            if self._exclusive:
                self._model.at_most({cells.u[g, t]: 1.0 for g in groups}, 1)
            for group in groups:
                if (group, t) in cells.k:
                    self._add_carry_of(part, cells, group, t, groups)

    def _add_carry_of(
        self,
        part: PlannedJob,
        cells: ModelVariables,
        group: GangGroup,
        t: int,
        here: Iterable[GangGroup],
    ) -> None:
        k = cells.k[group, t]
        self._model.at_most({k: 1, cells.u[group, t]: -1}, 0)
        before = list(cells.before(group, t))
        if before and (group, t) not in cells.living:
            self._model.at_most({k: 1.0} | {cells.u[g, t - 1]: -1.0 for g in before}, 0)
        if self._exclusive:
            for earlier in before:
                self._add_full_slot(part, cells, earlier, t - 1, k)
            return
        others = {cells.u[g, t]: 1.0 for g in here if g != group}
        after = cells.k.get((group, t + 1))
        if after is not None and others:
            room = float(len(others))
            self._model.at_most(others | {k: room, after: room}, 2 * room)

    def _add_full_slot(
        self, part: PlannedJob, cells: ModelVariables, group: GangGroup, t: int, runs_on: int
    ) -> None:
        """A gang that runs on into the next slot has filled this one."""
        table, hours = part.table, self._slots[t].hours_of(part.demand)
        members = cells.members[group, t]
        delta = min(float(table.start_h[part.options[members[0]].row]), hours)
        terms = {
            cells.x[o, t]: float(table.stretch[part.options[o].row]) * cells.hours[o, t]
            for o in members
        }
        terms[cells.u[group, t]] = delta - hours
        terms[runs_on] = -hours
        if (group, t) in cells.k:
            left_h = part.demand.starting_h if (group, t) in cells.living else 0.0
            terms[cells.k[group, t]] = -(delta - min(left_h, delta))
        self._model.at_least(terms, -hours - 1e-9)

    def _add_budget(self, part: PlannedJob, tariff: SlotCosts, cells: ModelVariables) -> None:
        budget, table = part.demand.job.budget, part.table
        if budget.max_usd is not None:
            self._at_most(self._usd(part, tariff, cells), budget.max_usd)
        if budget.max_kwh is not None:
            slots = len(self._slots)
            rows = np.array([option.row for option in part.options], dtype=np.int64)
            per_hour = np.broadcast_to(table.kwh_per_hour[rows], (slots, len(rows)))
            per_start = np.broadcast_to(table.kwh_per_start[rows], (slots, len(rows)))
            self._at_most(self._sum(part, cells, per_hour, per_start), budget.max_kwh)

    def _add_total_budgets(self) -> None:
        for total in total_limits(self._request):
            terms: dict[int, float] = {}
            for part, tariff, cells in zip(self._parts, self._tariffs, self._cells, strict=True):
                if total.counts(part.demand.job):
                    terms |= self._usd(part, tariff, cells)
            self._at_most(terms, total.max_usd)
        for ceiling in self._request.ceilings:
            terms = {}
            for part, tariff, cells in zip(self._parts, self._tariffs, self._cells, strict=True):
                terms |= self._score(part, tariff.scored_by(ceiling.weights), cells)
            self._at_most(terms, ceiling.most)

    def _at_most(self, terms: dict[int, float], most: float) -> None:
        """A budget in shares of itself: coefficients near 1 whatever its size."""
        scale = max(abs(most), 1e-6 * max(map(abs, terms.values()), default=0.0), 1e-12)
        self._model.at_most({i: a / scale for i, a in terms.items()}, most / scale)

    def _usd(self, part: PlannedJob, tariff: SlotCosts, cells: ModelVariables) -> dict[int, float]:
        rows = np.array([option.row for option in part.options], dtype=np.int64)
        return self._sum(part, cells, tariff.usd_per_hour(rows), tariff.usd_per_start(rows))

    def _score(
        self, part: PlannedJob, tariff: SlotCosts, cells: ModelVariables
    ) -> dict[int, float]:
        rows = np.array([option.row for option in part.options], dtype=np.int64)
        return self._sum(part, cells, tariff.score_per_hour(rows), tariff.start_score(rows))

    def _sum(
        self, part: PlannedJob, cells: ModelVariables, per_hour: Array, per_start: Array
    ) -> dict[int, float]:
        """Of figures by slot and option."""
        terms = {x: cells.hours[o, t] * float(per_hour[t, o]) for (o, t), x in cells.x.items()}
        for (group, t), u in cells.u.items():
            first = cells.members[group, t][0]
            terms[u] = float(per_start[t, first])
            if (group, t) in cells.k:
                living = (group, t) in cells.living
                left = part.left_share(part.options[first].row) if living else 0.0
                terms[cells.k[group, t]] = -terms[u] * (1 - left)
        return terms

    def _add_shared(self) -> None:
        for limit in self._limits:
            for t, slot in enumerate(self._slots):
                if limit.near and not slot.near:
                    continue
                terms: dict[int, float] = {}
                for part, cells in zip(self._parts, self._cells, strict=True):
                    for (group, at), u in cells.u.items():
                        if at == t:
                            terms[u] = max(
                                limit.load(
                                    self._request, part.demand, part.table, part.options[o].row
                                )
                                for o in cells.members[group, at]
                            )
                if any(terms.values()):
                    self._at_most(terms, max(0.0, limit.most))


def _max_hours(part: PlannedJob, option: StageConfiguration, slot: Slot) -> float:
    """The paid hours that fit the slot, or that the stage needs where that is less."""
    needed = part.demand.stages[option.stage].units / part.units_per_hour(option)
    fits = slot.hours_of(part.demand) / float(part.table.stretch[option.row])
    return min(fits, needed * (1 + 2 * WORK_MARGIN))


def _unit_usd(parts: list[PlannedJob]) -> float:
    """The typical cost of the whole: the sum of each job's cheapest configuration."""
    total = 0.0
    for part in parts:
        rows = [option.row for option in part.options]
        if rows:
            per_unit = part.table.score_per_hour[rows] / part.table.paid_units_per_hour[rows]
            total += float(per_unit.min()) * part.demand.units
    return total if total > 0 else 1.0


def add_no_pause_rows(
    model: LinearModel, part: PlannedJob, cells: ModelVariables, slots: Sequence[Slot]
) -> None:
    """Add rows so that stages that may not pause begin once and fill all slots but their last."""
    for number, stage in enumerate(part.demand.stages):
        if stage.may_pause:
            continue
        begins: dict[int, float] = {}
        before: dict[int, float] = {}
        for t in range(len(slots)):
            here = {u: 1.0 for (group, at), u in cells.u.items() if at == t and group[0] == number}
            begun = model.variable(1)
            begins[begun] = 1.0
            model.at_least({begun: 1.0} | _negative(here) | before, 0)
            if before and here:
                both = _negative(here) | _negative(before)
                _add_filled(model, part, cells, slots[t - 1], number, t - 1, both)
            before = here
        model.at_most(begins, 1)


def _add_filled(
    model: LinearModel,
    part: PlannedJob,
    cells: ModelVariables,
    slot: Slot,
    stage: int,
    t: int,
    both: dict[int, float],
) -> None:
    """The slot is held to its end where the stage is used in it and in the next one."""
    hours = slot.hours_of(part.demand)
    terms = {i: a * hours for i, a in both.items()}
    for (o, at), x in cells.x.items():
        if at == t and part.options[o].stage == stage:
            terms[x] = float(part.table.stretch[part.options[o].row]) * cells.hours[o, at]
    for (group, at), u in cells.u.items():
        if at != t or group[0] != stage:
            continue
        row = part.options[cells.members[group, at][0]].row
        delta = min(float(part.table.start_h[row]), hours)
        terms[u] = terms.get(u, 0.0) + delta
        if (group, at) in cells.k:
            left_h = part.demand.starting_h if (group, at) in cells.living else 0.0
            terms[cells.k[group, at]] = -(delta - min(left_h, delta))
    model.at_least(terms, -hours - 1e-9)


def _negative(terms: Mapping[int, float]) -> dict[int, float]:
    return {variable: -factor for variable, factor in terms.items()}


def add_order(
    model: LinearModel, part: PlannedJob, cells: ModelVariables, slots: Sequence[Slot]
) -> None:
    """Add rows so that a stage begins once the one before is done, and ends before a later begins.

    Without the second, a solution that does more than a stage's work may do it after later stages.
    """
    for stage in range(1, len(part.demand.stages)):
        done = _add_done(model, part, cells, stage - 1, len(slots))
        for (group, t), u in cells.u.items():
            if group[0] != stage:
                continue
            model.at_least({done[t]: 1.0, u: -1.0}, 0)
            if (group, t) in cells.k:
                before = {done[t - 1]: 1.0} if t else {}
                model.at_least(before | {cells.k[group, t]: -1.0}, 0)
        _add_end_of_earlier(model, cells, stage, len(slots))


def _add_done(
    model: LinearModel, part: PlannedJob, cells: ModelVariables, stage: int, slots: int
) -> list[int]:
    """By slot, a variable of at most the share of the stage's work that is done by its end.

    Each rests on the one before: sums over all earlier slots would make the rows dense.
    """
    units = part.demand.stages[stage].units
    by_slot: dict[int, dict[int, float]] = {}
    for (o, t), x in cells.x.items():
        option = part.options[o]
        if option.stage == stage:
            share = cells.hours[o, t] * part.units_per_hour(option) / units
            by_slot.setdefault(t, {})[x] = share
    done: list[int] = []
    for t in range(slots):
        here = model.variable(1)
        before = {done[-1]: 1.0} if done else {}
        model.at_least(before | by_slot.get(t, {}) | {here: -1.0}, 0)
        done.append(here)
    return done


def _add_end_of_earlier(model: LinearModel, cells: ModelVariables, stage: int, slots: int) -> None:
    """``begun`` is at least every use of this stage or a later one in the slots before."""
    begun = model.variable(1)
    for t in range(1, slots):
        later = [u for (group, at), u in cells.u.items() if at == t - 1 and group[0] >= stage]
        earlier = [u for (group, at), u in cells.u.items() if at == t and group[0] == stage - 1]
        if later:
            before, begun = begun, model.variable(1)
            for variable in (before, *later):
                model.at_least({begun: 1.0, variable: -1.0}, 0)
        for u in earlier:
            model.at_most({u: 1.0, begun: 1.0}, 1)
