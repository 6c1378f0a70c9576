"""Programs that were solved, for jobs that are alike to share."""

from __future__ import annotations

import math
from weakref import WeakValueDictionary

from costopt.strategies.deadline_program import Program
from costopt.strategies.deadline_terms import Terms
from costopt.strategies.lanes import moved

MOST_BYTES = 128 * 2**20
"""All of them together hold about so much, as far as ``LEAST_KEPT`` allows."""
LEAST_KEPT, MOST_KEPT = 6, 96
"""Steps for which a program is kept; then it is solved anew."""
VALUE_BYTES = 4


class Programs:
    """Forgets those that no job uses any more."""

    def __init__(self) -> None:
        self._solved: WeakValueDictionary[int, Program] = WeakValueDictionary()
        self._count = 0

    def solved(self, wanted: Terms, steps: float, spare: int) -> Program:
        """A program for terms like these, with so many steps to go, and so many to spare."""
        for program in reversed(list(self._solved.values())):
            enough = program.covers(steps) and program.spare >= spare
            if enough and not moved(program.terms, wanted):
                return program
        row_bytes = VALUE_BYTES * (spare + 1) * wanted.columns
        keep = MOST_BYTES // (row_bytes * (len(self._solved) + 1))
        keep = min(MOST_KEPT, max(LEAST_KEPT, keep))
        program = Program(wanted, max(1, math.ceil(steps)), spare, keep)
        self._count += 1
        self._solved[self._count] = program
        return program
