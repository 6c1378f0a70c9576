"""Solving a request: each job by itself, and together only where they compete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costopt.domain.errors import SolverError
from costopt.optimize.layout import Segment, broken_limits, lay_out, spent, verify
from costopt.optimize.model import JobPart, PlanModel, Use
from costopt.optimize.prune import Competition, options_of
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import SharedLimit, shared_limits, totals_limit_usd
from costopt.optimize.slots import Slot, slots_of
from costopt.optimize.solver import Outcome

ALONE_GAP = 1e-6
"""A job by itself is a small program: solved to the end, it holds no needless change of pools."""

CELLS = 6000
"""Options × slots over all competing jobs beyond which slots are made longer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the solver found: the segments of each part, or none where ``outcome`` says why."""

    outcome: Outcome
    segments: tuple[tuple[Segment, ...], ...] = ()
    objective_usd: float = 0.0
    bound_usd: float = 0.0
    solver: str = ""
    solve_s: float = 0.0
    blocked: tuple[str, ...] = ()

    @property
    def solved(self) -> bool:
        """Whether there is a plan."""
        return self.outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE)


def solve_parts(
    request: PlanRequest,
    parts: Sequence[JobPart],
    *,
    time_limit_s: float,
    gap: float,
    solver: str | None = None,
) -> Answer:
    """The cheapest plan of all jobs; every one is checked outside the solver.

    Jobs are solved apart, which is a relaxation; where the plans together keep every shared limit
    they are optimal together. Else the jobs are solved one after the other by deadline, each in
    what the earlier ones leave, and then together in the time that remains; the better one counts
    and the relaxation is the bound. Raises SolverError.
    """
    started = time.perf_counter()
    alone = [
        _solve_alone(request, part, time_limit_s=time_limit_s, solver=solver) for part in parts
    ]
    apart = _together(alone)
    if not apart.solved or len(parts) == 1:
        return _within(apart, gap)
    limits = shared_limits(request)
    blocked = tuple(broken_limits(request, limits, list(zip(parts, apart.segments, strict=True))))
    total = totals_limit_usd(request)
    if total is not None and _usd(parts, apart) > total[1]:
        blocked = (*blocked, total[0])
    if not blocked:
        return _within(apart, gap)
    left_s = max(0.1, time_limit_s - (time.perf_counter() - started))
    return replace(
        _solve_competing(request, parts, limits, apart, left_s, gap, solver), blocked=blocked
    )


def _competing(request: PlanRequest, part: JobPart) -> JobPart:
    """The part with options to give way with, at every quota."""
    machines = request.machines
    offers = part.table.offers
    first = np.array(
        [
            parts[0][0] if parts else number
            for number, parts in zip(part.table.offer.tolist(), part.table.spread, strict=True)
        ],
        dtype=np.int64,
    )
    escapes = tuple(
        ~np.array([quota.matches(o.pool, machines[o.pool]) for o in offers])[first]
        for quota in request.quotas
    )
    return replace(part, options=options_of(part.table, part.demand, Competition(escapes)))


def _solve_alone(
    request: PlanRequest, part: JobPart, *, time_limit_s: float, solver: str | None
) -> Answer:
    part = replace(part, options=options_of(part.table, part.demand))
    scarce = not bool(part.table.now.all())
    slots = slots_of([part.demand], scarce_now=scarce)
    if not slots or not part.options:
        return Answer(Outcome.INFEASIBLE)
    model = PlanModel(request, [part], slots)
    return _answer(model, [part], slots, time_limit_s, ALONE_GAP, solver, exclusive=False)


def _together(answers: Sequence[Answer]) -> Answer:
    for outcome in (Outcome.INFEASIBLE, Outcome.UNKNOWN):
        if any(answer.outcome is outcome for answer in answers):
            return Answer(outcome, solve_s=sum(answer.solve_s for answer in answers))
    optimal = all(answer.outcome is Outcome.OPTIMAL for answer in answers)
    return Answer(
        Outcome.OPTIMAL if optimal else Outcome.FEASIBLE,
        tuple(segments for answer in answers for segments in answer.segments),
        sum(answer.objective_usd for answer in answers),
        sum(answer.bound_usd for answer in answers),
        answers[0].solver if answers else "",
        sum(answer.solve_s for answer in answers),
    )


def _within(answer: Answer, gap: float) -> Answer:
    """OPTIMAL is within the gap that was asked, whatever the solver was told."""
    if answer.outcome is Outcome.FEASIBLE and _gap(answer, answer.bound_usd) <= gap:
        return replace(answer, outcome=Outcome.OPTIMAL)
    return answer


def _solve_competing(
    request: PlanRequest,
    parts: Sequence[JobPart],
    limits: tuple[SharedLimit, ...],
    apart: Answer,
    time_limit_s: float,
    gap: float,
    solver: str | None,
) -> Answer:
    competing = [_competing(request, part) for part in parts]
    slots = _competing_slots(request, competing)
    started = time.perf_counter()
    turns = None
    for fair in (False, True):
        if turns is None:
            turns = _in_turn(request, competing, limits, slots, time_limit_s / 3, gap, solver, fair)
    left_s = time_limit_s - (time.perf_counter() - started)
    joint = Answer(Outcome.UNKNOWN)
    if left_s > 0.05 and not (turns is not None and _gap(turns, apart.bound_usd) <= gap):
        model = PlanModel(request, competing, slots, limits, exclusive=True)
        joint = _answer(model, competing, slots, left_s, gap, solver, exclusive=True)
    found = [answer for answer in (joint, turns) if answer is not None and answer.solved]
    if not found:
        return joint
    best = min(found, key=lambda answer: answer.objective_usd)
    # Slots only restrict: the bound that holds for the real problem is that of the jobs apart.
    bound_usd = min(apart.bound_usd, best.objective_usd)
    outcome = Outcome.OPTIMAL if _gap(best, bound_usd) <= gap else Outcome.FEASIBLE
    return replace(best, outcome=outcome, bound_usd=bound_usd)


def _gap(answer: Answer, bound_usd: float) -> float:
    return (answer.objective_usd - bound_usd) / max(abs(answer.objective_usd), 1e-9)


def _competing_slots(request: PlanRequest, parts: Sequence[JobPart]) -> tuple[Slot, ...]:
    demands = [part.demand for part in parts]
    horizon_h = max(d.due_h for d in demands) - min(d.release_h for d in demands)
    options = sum(len(part.options) for part in parts)
    overhead_h = max(d.job.overhead_s for d in demands) / 3600
    slot_h = max(1.0, horizon_h * options / CELLS, 2.5 * overhead_h)
    if request.slot_s is not None:
        slot_h = max(request.slot_s / 3600, 2.5 * overhead_h)
    scarce = any(not bool(part.table.now.all()) for part in parts) or any(
        offer.nodes_available is not None for offer in request.offers
    )
    return slots_of(demands, scarce_now=scarce, slot_h=slot_h)


def _in_turn(
    request: PlanRequest,
    parts: Sequence[JobPart],
    limits: tuple[SharedLimit, ...],
    slots: tuple[Slot, ...],
    time_limit_s: float,
    gap: float,
    solver: str | None,
    fair: bool,
) -> Answer | None:
    """Jobs by deadline, each within what the ones before it leave of every limit in every slot.

    ``fair``: each takes at most an equal share of what is left, so that the last is not crowded
    out by a first one that took many slow nodes because they are cheap.
    """
    left = {(n, t): limit.most for n, limit in enumerate(limits) for t in range(len(slots))}
    answers: dict[int, Answer] = {}
    usd = 0.0
    for turn, number in enumerate(sorted(range(len(parts)), key=lambda i: parts[i].demand.due_h)):
        part = parts[number]
        waiting = len(parts) - turn if fair else 1
        room = {place: most / waiting for place, most in left.items()}
        policy = request.policy
        total = totals_limit_usd(request)
        if total is not None:
            remaining = replace(policy.limits, max_usd=max(0.0, total[1] - usd))
            policy = replace(policy, limits=remaining)
        model = PlanModel(
            replace(request, policy=policy), [part], slots, limits, exclusive=True, room=room
        )
        solution = model.solve(time_limit_s=time_limit_s / len(parts), gap=gap, solver=solver)
        if solution.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
            return None
        (uses,) = model.uses(solution)
        segments = lay_out(part, uses, slots, exclusive=True)
        verify(part, segments)
        answers[number] = _answer_of(part, segments, solution.solver, solution.solve_s)
        usd += spent(segments, part.table, part.demand, "usd")
        _take_room(request, part, uses, limits, left)
    return _together([answers[number] for number in range(len(parts))])


def _take_room(
    request: PlanRequest,
    part: JobPart,
    uses: Sequence[Use],
    limits: tuple[SharedLimit, ...],
    left: dict[tuple[int, int], float],
) -> None:
    for use in uses:
        for n, limit in enumerate(limits):
            left[n, use.slot] -= limit.load(request, part.demand, part.table, use.option.row)


def _answer_of(part: JobPart, segments: tuple[Segment, ...], solver: str, solve_s: float) -> Answer:
    score = spent(segments, part.table, part.demand, "score")
    return Answer(Outcome.FEASIBLE, (segments,), score, 0.0, solver, solve_s)


def _answer(
    model: PlanModel,
    parts: Sequence[JobPart],
    slots: tuple[Slot, ...],
    time_limit_s: float,
    gap: float,
    solver: str | None,
    *,
    exclusive: bool,
) -> Answer:
    solution = model.solve(time_limit_s=time_limit_s, gap=gap, solver=solver)
    if solution.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
        return Answer(solution.outcome, solver=solution.solver, solve_s=solution.solve_s)
    segments: list[tuple[Segment, ...]] = []
    for part, uses in zip(parts, model.uses(solution), strict=True):
        laid = lay_out(part, uses, slots, exclusive=exclusive)
        verify(part, laid)
        segments.append(laid)
    unit = model.unit_usd
    objective = sum(
        spent(laid, part.table, part.demand, "score")
        for part, laid in zip(parts, segments, strict=True)
    )
    if objective - solution.objective * unit > 1e-3 * max(abs(objective), 1e-9):
        raise SolverError("the plan's cost outside the solver differs from the solver's")
    return Answer(
        solution.outcome,
        tuple(segments),
        objective,
        min(solution.bound * unit, objective),
        solution.solver,
        solution.solve_s,
    )


def _usd(parts: Sequence[JobPart], answer: Answer) -> float:
    return sum(
        spent(segments, part.table, part.demand, "usd")
        for part, segments in zip(parts, answer.segments, strict=True)
    )
