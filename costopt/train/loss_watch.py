"""Notices a loss that is not a number, or far above those before it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

MIN_HISTORY = 10
WINDOW = 50


@dataclass(frozen=True, slots=True)
class RollbackPolicy:
    """Go back to the last checkpoint where the loss goes wrong, and skip the data in between.

    Wrong is NaN or infinite; with ``spike``, also more than that many times the median of the
    last 50 steps (after 10). At most ``limit`` times in the life of the job. Skipping the batches
    between the checkpoint and the spike follows Chowdhery et al., PaLM (2022), section 5.1.
    """

    limit: int = 3
    spike: float | None = None

    def __post_init__(self) -> None:
        if self.limit < 1 or (self.spike is not None and self.spike <= 1.0):
            raise ValueError(f"{self}: limit must be at least 1, spike above 1")


class LossMonitor:
    """Looks at each step's mean loss, before the step is made."""

    def __init__(self, rule: RollbackPolicy) -> None:
        self.rule = rule
        self._past: deque[float] = deque(maxlen=WINDOW)

    def wrong(self, loss: float | None) -> str | None:
        """What is wrong with it, or None; a step without an observed loss is fine."""
        if loss is None:
            return None
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        spike = self.rule.spike
        if spike is not None and len(self._past) >= MIN_HISTORY:
            usual = median(self._past)
            if loss > spike * usual:
                return f"the loss is {loss:g}, {spike:g} times the usual {usual:g} or more"
        self._past.append(loss)
        return None
