"""The work of one job: done, saved, lost, and how it went over time."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.events import CheckpointCommitted, ProgressReported, WorkLost
from costopt.ledger.curve import ProgressCurve

RATIO_ROUNDING = 1e-9


class WorkAccount:
    """Units of work, as the newest event tells; lost units only ever add up."""

    def __init__(self) -> None:
        self.done_units = 0.0
        self.saved_units = 0.0
        self.lost_units = 0.0
        self.units_per_s: float | None = None
        self.checkpoints = 0
        self.curve = ProgressCurve()
        self._rated_to_units = 0.0
        self._measured_units = 0.0
        self._declared_units = 0.0

    @property
    def speed_ratio(self) -> float | None:
        """The measured speed over the declared one, the mean over all work for which one was
        measured, work that was done twice included; None where none was."""
        if self._declared_units <= 0:
            return None
        ratio = self._measured_units / self._declared_units
        return 1.0 if abs(ratio - 1.0) < RATIO_ROUNDING else ratio

    def record_done(self, at: datetime, done_units: float) -> None:
        """The gang starts or stops at ``done_units``; less than before is a step down at ``at``."""
        if done_units < self.done_units:
            self.record_point(at)
        self.done_units = done_units
        self._rated_to_units = min(self._rated_to_units, done_units)
        self.record_point(at)

    def report(self, event: ProgressReported) -> None:
        """What the nodes report replaces what was known."""
        done_units = event.done_units - self._rated_to_units
        self._rated_to_units = event.done_units
        if event.speed_ratio is not None and done_units > 0:
            self._measured_units += done_units
            self._declared_units += done_units / event.speed_ratio
        self.done_units, self.saved_units = event.done_units, event.saved_units
        self.units_per_s = event.units_per_s
        self.record_point(event.at)

    def commit(self, event: CheckpointCommitted) -> None:
        """A checkpoint never takes work back."""
        self.checkpoints += 1
        self.saved_units = max(self.saved_units, event.units)
        self.done_units = max(self.done_units, event.units)
        self.record_point(event.at)

    def lose(self, event: WorkLost) -> None:
        """Work falls back, at most to what is saved."""
        self.lost_units += event.units
        self.record_done(event.at, max(self.saved_units, self.done_units - event.units))

    def finish(self, at: datetime, units: float) -> None:
        """All of it is done and saved."""
        self.done_units = self.saved_units = units
        self.record_point(at)

    def record_point(self, at: datetime) -> None:
        """Add the present figures to the curve."""
        self.curve.add(at, self.done_units, self.saved_units)
