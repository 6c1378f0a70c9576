"""How fast a job is taken to be: what was measured over the last hours, not over the last minute.

A node that is busy for a moment reports a low speed. Where each report counted in full, a job would
go to on-demand at one and back to spot at the next, and pay two starts for nothing. So decisions
rest on the running mean of what was measured, and on uninterrupted capacity on the lower of that
and of what was measured lately: it is left only once the job has been fast for a while. The shield
believes every report at once, as the deadline does not wait for means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.view import JobView

MEMORY_H = 1.0
"""Of the running mean: a speed that stays as it is for so long is believed to two thirds."""


@dataclass(slots=True)
class SmoothedSpeed:
    """Factors on the speed that the job's spec predicts, as ``JobView.speed_factor``.

    ``mean`` is over what was measured, the first report in full; ``cautious`` falls at once
    and rises as slowly as the mean.
    """

    mean: float = 1.0
    cautious: float = 1.0
    _measured_h: float = 0.0
    _seen_at: datetime | None = None

    def update(self, job_view: JobView, now: datetime) -> None:
        """Take note of what is measured now; a second look at the same instant is none."""
        factor = job_view.speed_factor
        if self._seen_at is None:
            measured = factor != 1.0 or job_view.progress.measured_units_per_s is not None
            if measured:
                self.mean = self.cautious = factor
                self._seen_at = now
            return
        apart_h = (now - self._seen_at).total_seconds() / 3600
        if apart_h <= 0:
            return
        self._measured_h = min(MEMORY_H, self._measured_h + apart_h)
        self.mean += -math.expm1(-apart_h / self._measured_h) * (factor - self.mean)
        risen = self.cautious - math.expm1(-apart_h / MEMORY_H) * (factor - self.cautious)
        self.cautious = min(factor, risen, self.mean)
        self._seen_at = now
