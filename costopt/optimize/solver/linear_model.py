"""A linear model with integers, solved by HiGHS or CBC through PuLP.

PuLP is the modelling layer. HiGHS gets the whole matrix at once, since PuLP's own interface adds
row by row and takes longer than the solve; where ``highspy`` is missing, PuLP's bundled CBC solves.
A solver's "optimal" is never believed: a time-out with an incumbent says so too. What counts is the
solution status, the bound, and the incumbent checked against every row here.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pulp

from costopt.domain.errors import SolverError
from costopt.optimize.solver.highs import new_highs

TOLERANCE = 1e-6
"""How far a row, a bound or an integer may be off in the incumbent: the solvers' own default."""

SMALL_MODEL_SIZE = 2000
"""Variables up to which HiGHS' start heuristic takes longer than the rest of the solve."""


class SolveStatus(StrEnum):
    """The status with which a solve ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Solution:
    """``values`` by variable number, empty without an incumbent; ``bound`` is a proven lower one.

    ``gap`` = (objective − bound) / max(|objective|, 1e-9). OPTIMAL means that the gap is within
    what was asked, FEASIBLE that time ran out before, UNKNOWN that it did without an incumbent.
    ``build_s`` is what building the model took, and its transfer where HiGHS solves.
    """

    outcome: SolveStatus
    values: tuple[float, ...]
    objective: float
    bound: float
    solver: str
    build_s: float = 0.0

    @property
    def gap(self) -> float:
        """Return the proven relative distance to the optimum."""
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), 1e-9)


class LinearModel:
    """The program min c·x over rows low ≤ a·x ≤ high, with bounded variables.

    Variables are numbered in the order they are added.
    """

    def __init__(self, name: str) -> None:
        self._began = time.perf_counter()
        self._problem = pulp.LpProblem(name, pulp.LpMinimize)
        self._variables: list[Any] = []
        self._constraints: list[Any] = []
        self._costs: dict[int, float] = {}
        self._rows: list[tuple[dict[int, float], float, float]] = []

    def variable(
        self, high: float, *, cost: float = 0.0, integer: bool = False, low: float = 0.0
    ) -> int:
        """Add a variable in [low, high] and return its number."""
        number = len(self._variables)
        kind = pulp.LpInteger if integer else pulp.LpContinuous
        self._variables.append(self._problem.add_variable(f"v{number}", low, high, cat=kind))
        if cost:
            self._costs[number] = _finite(cost)
        return number

    def at_most(self, terms: Mapping[int, float], high: float) -> None:
        """Add the row terms · x ≤ high."""
        self._row(terms, -math.inf, high)

    def at_least(self, terms: Mapping[int, float], low: float) -> None:
        """Add the row terms · x ≥ low."""
        self._row(terms, low, math.inf)

    def solve(self, *, time_limit_s: float, gap: float, solver: str | None = None) -> Solution:
        """Return the solution by "highs" or "cbc" (None: HiGHS where installed).

        Raise SolverError if the solver fails or its incumbent violates a row.
        """
        if not self._variables:
            return self._empty()
        chosen = solver or ("highs" if importlib.util.find_spec("highspy") else "cbc")
        self._write_problem()
        self._transfer_s = 0.0
        build_s = time.perf_counter() - self._began
        if chosen == "highs":
            outcome, values, bound = self._highs(time_limit_s, gap)
        elif chosen == "cbc":
            outcome, values, bound = self._cbc(time_limit_s, gap)
        else:
            raise SolverError(f"unknown solver {chosen!r}", hint="choose highs or cbc")
        build_s += self._transfer_s
        objective = sum(cost * values[i] for i, cost in self._costs.items()) if values else math.inf
        self._check(values, chosen)
        found = Solution(outcome, tuple(values), objective, bound, chosen, build_s)
        if outcome is SolveStatus.OPTIMAL and found.gap > gap + TOLERANCE:
            return replace(found, outcome=SolveStatus.FEASIBLE)
        return found

    def _row(self, terms: Mapping[int, float], low: float, high: float) -> None:
        self._rows.append(({i: _finite(a) for i, a in terms.items() if a}, low, high))

    def _empty(self) -> Solution:
        fits = all(low <= 0 <= high for _, low, high in self._rows)
        outcome = SolveStatus.OPTIMAL if fits else SolveStatus.INFEASIBLE
        return Solution(outcome, (), 0.0, 0.0, "none")

    def _write_problem(self) -> None:
        """Straight from dictionaries: PuLP's sums over pairs are slow and read (x, 2) as x + 2."""
        variables = self._variables
        self._problem += pulp.LpAffineExpression({variables[i]: c for i, c in self._costs.items()})
        for number, (terms, low, high) in enumerate(self._rows):
            expression = pulp.LpAffineExpression({variables[i]: a for i, a in terms.items()})
            sense, rhs = (
                (pulp.LpConstraintLE, high) if low == -math.inf else (pulp.LpConstraintGE, low)
            )
            constraint = pulp.LpConstraint(expression, sense, f"r{number}", rhs)
            self._problem.addConstraint(constraint)
            self._constraints.append(constraint)

    def _highs(self, time_limit_s: float, gap: float) -> tuple[SolveStatus, list[float], float]:
        import highspy

        highs = new_highs(
            time_limit=max(time_limit_s, 0.01),
            mip_rel_gap=gap,
            mip_heuristic_run_feasibility_jump=len(self._variables) > SMALL_MODEL_SIZE,
        )
        began = time.perf_counter()
        if highs.passModel(self._highs_lp(highspy)) == highspy.HighsStatus.kError:
            raise SolverError("HiGHS refused the model")
        self._transfer_s = time.perf_counter() - began
        if highs.run() == highspy.HighsStatus.kError:
            raise SolverError("HiGHS failed on the model")
        status, info = highs.getModelStatus(), highs.getInfo()
        if status in (
            highspy.HighsModelStatus.kInfeasible,
            highspy.HighsModelStatus.kUnboundedOrInfeasible,
        ):
            return SolveStatus.INFEASIBLE, [], math.inf
        is_mip = any(v.cat == pulp.LpInteger for v in self._variables)
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return SolveStatus.UNKNOWN, [], info.mip_dual_bound if is_mip else -math.inf
        values = [float(x) for x in highs.getSolution().col_value]
        proven = status == highspy.HighsModelStatus.kOptimal
        bound = info.mip_dual_bound if is_mip else info.objective_function_value
        return (SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE), values, float(bound)

    def _highs_lp(self, highspy: Any) -> Any:
        variables, constraints = self._variables, self._constraints
        number_of = {variable.name: i for i, variable in enumerate(variables)}
        starts, columns, coefficients = [0], list[int](), list[float]()
        for constraint in constraints:
            for variable, coefficient in constraint.items():
                columns.append(number_of[variable.name])
                coefficients.append(coefficient)
            starts.append(len(columns))
        costs = np.zeros(len(variables))
        for variable, cost in self._problem.objective.items():
            costs[number_of[variable.name]] = cost
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(variables), len(constraints)
        lp.col_cost_ = costs
        lp.col_lower_ = np.array([v.lowBound for v in variables], dtype=float)
        lp.col_upper_ = np.array([v.upBound for v in variables], dtype=float)
        lp.row_lower_ = np.array(
            [-c.constant if c.sense == pulp.LpConstraintGE else -np.inf for c in constraints]
        )
        lp.row_upper_ = np.array(
            [-c.constant if c.sense == pulp.LpConstraintLE else np.inf for c in constraints]
        )
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(starts, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(columns, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(coefficients, dtype=float)
        lp.integrality_ = [
            highspy.HighsVarType.kInteger
            if v.cat == pulp.LpInteger
            else highspy.HighsVarType.kContinuous
            for v in variables
        ]
        return lp

    def _cbc(self, time_limit_s: float, gap: float) -> tuple[SolveStatus, list[float], float]:
        bound = self._relaxation_bound(time_limit_s)
        if bound == math.inf:
            return SolveStatus.INFEASIBLE, [], math.inf
        self._run_cbc(timeLimit=time_limit_s, gapRel=gap)
        solved = self._problem.sol_status
        if solved == pulp.LpSolutionInfeasible:
            return SolveStatus.INFEASIBLE, [], math.inf
        if solved not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return SolveStatus.UNKNOWN, [], bound
        values = [float(v.varValue or 0.0) for v in self._variables]
        if solved == pulp.LpSolutionIntegerFeasible:
            return SolveStatus.FEASIBLE, values, bound
        objective = sum(cost * values[i] for i, cost in self._costs.items())
        return SolveStatus.OPTIMAL, values, max(bound, objective - gap * abs(objective) - TOLERANCE)

    def _relaxation_bound(self, time_limit_s: float) -> float:
        """CBC does not report its bound: that of the linear relaxation is used (∞: infeasible)."""
        self._run_cbc(timeLimit=time_limit_s, mip=False)
        if self._problem.sol_status == pulp.LpSolutionInfeasible:
            return math.inf
        if self._problem.sol_status != pulp.LpSolutionOptimal:
            return -math.inf
        return float(pulp.value(self._problem.objective) or 0.0)

    def _run_cbc(self, **options: Any) -> None:
        """Run the CBC that PuLP brings along."""
        path = pulp.PULP_CBC_CMD.pulp_cbc_path
        try:
            self._problem.solve(pulp.COIN_CMD(path=path, msg=False, **options))
        except pulp.PulpSolverError as error:
            raise SolverError(f"CBC failed: {error}") from error

    def _check(self, values: list[float], solver: str) -> None:
        """Every row, bound and integer of the incumbent, in place."""
        if not values:
            return
        for variable, value in zip(self._variables, values, strict=True):
            off = max(variable.lowBound - value, value - variable.upBound)
            if variable.cat == pulp.LpInteger:
                off = max(off, abs(value - round(value)))
            if not off <= 10 * TOLERANCE * max(1.0, abs(value)):
                raise SolverError(
                    f"{solver} answered {variable.name} = {value:g}, out of its range"
                )
        for terms, low, high in self._rows:
            total = sum(a * values[i] for i, a in terms.items())
            scale = max(1.0, *(abs(a) for a in terms.values())) if terms else 1.0
            if not low - 10 * TOLERANCE * scale <= total <= high + 10 * TOLERANCE * scale:
                raise SolverError(f"{solver} answered a solution that breaks a constraint")


def _finite(coefficient: float) -> float:
    if not math.isfinite(coefficient):
        raise SolverError(f"a coefficient of the model is {coefficient}")
    return float(coefficient)
