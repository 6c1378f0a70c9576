"""How fast the training steps now."""

from __future__ import annotations

from collections import deque

WARM_STEPS = 5
"""A process' first steps compile, reserve memory and start what saves: they tell nothing of what
comes after them."""
MIN_STEPS = 3
WINDOW_S = 10.0


class StepRate:
    """Steps per second over the last seconds, or over the last steps where those take longer.

    Unknown until enough steps were made after the first ones of this process.
    """

    def __init__(self) -> None:
        self._made = 0
        self._ends: deque[float] = deque()

    def record_step(self, now: float) -> None:
        """A step ended."""
        self._made += 1
        if self._made < WARM_STEPS:
            return
        self._ends.append(now)
        while len(self._ends) > MIN_STEPS + 1 and now - self._ends[0] > WINDOW_S:
            self._ends.popleft()

    def reset(self) -> None:
        """What comes next does not follow at once on the last step."""
        self._ends.clear()

    @property
    def step_s(self) -> float | None:
        """Seconds a step."""
        if len(self._ends) <= MIN_STEPS:
            return None
        return (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
