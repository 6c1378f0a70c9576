"""What the time of a training process goes into."""

from __future__ import annotations

import os
import time
from collections import deque

from costopt.checkpoint.process_start import process_start_time

WINDOW = 64
"""Steps over which the wait for data is averaged."""
MAX_STEPS = 100_000
"""Steps further back are never taken back."""
BEGAN_AT = "COSTOPT_BEGAN_AT"
"""When a warm process was given its script (POSIX seconds): its time before counts for nothing."""


class StepTimer:
    """Told of each step as it begins and ends. ``now`` is monotonic, for tests."""

    def __init__(self, began: float | None = None) -> None:
        """``began`` is when this process did, by the monotonic clock; by default as the system
        says."""
        age_s = time.time() - float(os.environ.get(BEGAN_AT) or process_start_time())
        self._began = time.monotonic() - age_s if began is None else began
        self._step_began: float | None = None
        self._waited_s: float | None = None
        self._useful_s = 0.0
        self._useful: deque[tuple[int, float]] = deque(maxlen=MAX_STEPS)
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def begin_step(self, now: float) -> None:
        """What was done of a step that did not end is lost."""
        self._step_began, self._waited_s = now, None

    def wait(self, wait_s: float) -> None:
        """The step waited so long for data."""
        self._waited_s = (self._waited_s or 0.0) + wait_s

    def end_step(self, step: int, now: float) -> None:
        """``step`` steps are done."""
        if self._step_began is None:
            return
        took_s = now - self._step_began
        self._useful_s += took_s
        self._useful.append((step, took_s))
        if self._waited_s is not None:
            self._recent.append((took_s, self._waited_s))
        self._step_began = None

    def record_rollback(self, step: int) -> None:
        """Training goes on after ``step`` steps: those beyond count no more."""
        while self._useful and self._useful[-1][0] > step:
            self._useful_s -= self._useful.pop()[1]

    @property
    def data_wait_share(self) -> float | None:
        """Of the time of the last steps; None before the first."""
        took_s = sum(took for took, _ in self._recent)
        return sum(waited for _, waited in self._recent) / took_s if took_s else None

    def goodput(self, now: float) -> float | None:
        """The share of the time since this process began that went into steps that count.

        Starting, restoring, forming gangs, saving while the loop waits, and steps that were lost
        are the rest. None before the first step.
        """
        if not self._useful:
            return None
        return max(0.0, min(1.0, self._useful_s / max(now - self._began, 1e-9)))
