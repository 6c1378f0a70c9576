"""A linear program that grows by rows and columns between solves, as column generation needs.

PuLP holds the model. HiGHS follows it in place and keeps its basis, so that a solve after new
columns takes a few steps; where ``highspy`` is missing, CBC solves the PuLP model from scratch.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pulp

from costopt.domain.errors import SolverError
from costopt.optimize.rates import Array
from costopt.optimize.solver.highs import new_highs


@dataclass(frozen=True, slots=True)
class LpSolution:
    """An optimal solution: ``values`` by column and ``duals`` by row.

    Duals are ≥ 0 for rows with a low end and ≤ 0 for rows with a high one.
    """

    objective: float
    values: Array
    duals: Array


class IncrementalProgram:
    """The program min c·x subject to x ≥ 0 and rows low ≤ a·x or a·x ≤ high.

    Rows and columns are numbered in the order they are added. ``build_s`` is the seconds that
    adding columns has taken so far.
    """

    def __init__(self, solver: str | None = None) -> None:
        self._problem = pulp.LpProblem("master", pulp.LpMinimize)
        self._problem += pulp.LpAffineExpression({})
        self._rows: list[Any] = []
        self._columns: list[Any] = []
        chosen = solver or ("highs" if importlib.util.find_spec("highspy") else "cbc")
        self.build_s = 0.0
        self._highs: Any = new_highs() if chosen == "highs" else None

    def row(
        self, *, low: float = -math.inf, high: float = math.inf, terms: Mapping[int, float]
    ) -> int:
        """Add a row over the present columns, with exactly one finite end; return its number."""
        number = len(self._rows)
        sense, rhs = (pulp.LpConstraintLE, high) if low == -math.inf else (pulp.LpConstraintGE, low)
        expression = pulp.LpAffineExpression({self._columns[i]: a for i, a in terms.items()})
        constraint = pulp.LpConstraint(expression, sense, f"r{number}", rhs)
        self._problem.addConstraint(constraint)
        self._rows.append(constraint)
        if self._highs is not None:
            index = np.fromiter(terms.keys(), dtype=np.int32, count=len(terms))
            value = np.fromiter(terms.values(), dtype=float, count=len(terms))
            self._highs.addRow(low, high, len(index), index, value)
        return number

    def columns(self, costs: Sequence[float], terms: Sequence[Mapping[int, float]]) -> None:
        """Add columns by their cost and their coefficient in each row."""
        began = time.perf_counter()
        for cost, column in zip(costs, terms, strict=True):
            number = len(self._columns)
            variable = self._problem.add_variable(f"z{number}", 0.0, None)
            self._columns.append(variable)
            self._problem.objective.addterm(variable, cost)
            for row, coefficient in column.items():
                self._rows[row].expr.addterm(variable, coefficient)
        if self._highs is not None:
            self._add_to_highs(costs, terms)
        self.build_s += time.perf_counter() - began

    def solve(self, *, time_limit_s: float) -> LpSolution | None:
        """Return the optimum, or None where time ran out.

        Raise SolverError if there is no optimum.
        """
        if self._highs is not None:
            return self._solve_highs(time_limit_s)
        return self._solve_cbc(time_limit_s)

    def _add_to_highs(self, costs: Sequence[float], terms: Sequence[Mapping[int, float]]) -> None:
        count = len(costs)
        sizes = [len(column) for column in terms]
        starts = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int32)
        index = np.array([row for column in terms for row in column], dtype=np.int32)
        value = np.array([a for column in terms for a in column.values()], dtype=float)
        self._highs.addCols(
            count,
            np.asarray(costs, dtype=float),
            np.zeros(count),
            np.full(count, np.inf),
            len(index),
            starts,
            index,
            value,
        )

    def _solve_highs(self, time_limit_s: float) -> LpSolution | None:
        import highspy

        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + max(time_limit_s, 0.01))
        if self._highs.run() == highspy.HighsStatus.kError:
            raise SolverError("HiGHS failed on the master program")
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kTimeLimit:
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"HiGHS found no optimum of the master program: {status}")
        solution = self._highs.getSolution()
        return LpSolution(
            float(self._highs.getInfo().objective_function_value),
            np.array(solution.col_value),
            np.array(solution.row_dual),
        )

    def _solve_cbc(self, time_limit_s: float) -> LpSolution | None:
        path = pulp.PULP_CBC_CMD.pulp_cbc_path
        try:
            self._problem.solve(pulp.COIN_CMD(path=path, msg=False, timeLimit=time_limit_s))
        except pulp.PulpSolverError as error:
            raise SolverError(f"CBC failed: {error}") from error
        if self._problem.status == pulp.LpStatusNotSolved:
            return None
        if self._problem.sol_status != pulp.LpSolutionOptimal:
            raise SolverError("CBC found no optimum of the master program")
        return LpSolution(
            float(pulp.value(self._problem.objective) or 0.0),
            np.array([float(v.varValue or 0.0) for v in self._columns]),
            np.array([float(row.pi or 0.0) for row in self._rows]),
        )
