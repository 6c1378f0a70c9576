"""Programs that were solved, for jobs that are alike to share."""

from __future__ import annotations

import math
from weakref import WeakValueDictionary

from costopt.strategies.deadline_program import ValueFunction
from costopt.strategies.deadline_terms import DeadlineProblem
from costopt.strategies.lanes import has_changed

MAX_BYTES = 128 * 2**20
"""All of them together hold about so much, as far as ``MIN_CACHED_PROGRAMS`` allows."""
MIN_CACHED_PROGRAMS, MAX_KEPT = 6, 96
"""Steps for which a program is kept; then it is solved anew."""
VALUE_BYTES = 4


class ProgramCache:
    """Forgets those that no job uses any more."""

    def __init__(self) -> None:
        self._solved: WeakValueDictionary[int, ValueFunction] = WeakValueDictionary()
        self._count = 0

    def solved(self, wanted: DeadlineProblem, steps: float, spare: int) -> ValueFunction:
        """A program for terms like these, with so many steps to go, and so many to spare."""
        for program in reversed(list(self._solved.values())):
            enough = program.contains(steps) and program.spare >= spare
            if enough and not has_changed(program.terms, wanted):
                return program
        row_bytes = VALUE_BYTES * (spare + 1) * wanted.columns
        keep = MAX_BYTES // (row_bytes * (len(self._solved) + 1))
        keep = min(MAX_KEPT, max(MIN_CACHED_PROGRAMS, keep))
        program = ValueFunction(wanted, max(1, math.ceil(steps)), spare, keep)
        self._count += 1
        self._solved[self._count] = program
        return program
