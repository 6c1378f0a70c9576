"""The interface to a solver: PuLP models, solved by HiGHS, or by bundled CBC where it is missing.

``linear_model`` holds whole programs with integers, ``incremental`` linear programs that get new
rows and columns between solves. No other package imports PuLP or a solver.
"""

from costopt.optimize.solver.incremental import IncrementalProgram, LpSolution
from costopt.optimize.solver.linear_model import LinearModel, Solution, SolveStatus

__all__ = ["IncrementalProgram", "LinearModel", "LpSolution", "Solution", "SolveStatus"]
