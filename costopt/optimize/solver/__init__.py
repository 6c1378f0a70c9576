"""The only door to a solver: PuLP models, solved by HiGHS, or by bundled CBC where it is missing.

``program`` holds whole programs with integers, ``growing`` linear programs that get new rows and
columns between solves.
"""

from costopt.optimize.solver.incremental import IncrementalProgram, LpSolution
from costopt.optimize.solver.linear_model import LinearModel, Solution, SolveStatus

__all__ = ["IncrementalProgram", "LinearModel", "LpSolution", "Solution", "SolveStatus"]
