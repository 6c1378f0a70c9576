"""The only door to a solver: PuLP models, solved by HiGHS, or by bundled CBC where it is missing.

``program`` holds whole programs with integers, ``growing`` linear programs that get new rows and
columns between solves.
"""

from costopt.optimize.solver.growing import GrowingProgram, Relaxed
from costopt.optimize.solver.program import LinearModel, Outcome, Solution

__all__ = ["GrowingProgram", "LinearModel", "Outcome", "Relaxed", "Solution"]
