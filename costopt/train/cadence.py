"""When the next checkpoint is due."""

from __future__ import annotations

import time

from costopt.domain.interval import checkpoint_interval_s

DEFAULT_INTERVAL_S = 1800.0
RETRY_S = 30.0
SMOOTHING = 0.3


class Cadence:
    """Intervals in the job's time, which runs ``speed`` times faster than the wall.

    With ``hazard_per_hour`` (of the whole gang) the interval follows the measured blocking time
    of a save; without, it is ``interval_s``, or half an hour where that is None.
    """

    def __init__(
        self,
        *,
        interval_s: float | None = None,
        hazard_per_hour: float | None = None,
        noticed_share: float = 0.0,
        speed: float = 1.0,
    ) -> None:
        self.interval_s = DEFAULT_INTERVAL_S if interval_s is None else interval_s
        self._hazard_per_hour = hazard_per_hour
        self._noticed_share = noticed_share
        self._speed = speed
        self._save_s: float | None = None
        self._due_at = time.monotonic() + self.interval_s / speed

    def is_due(self) -> bool:
        """Whether to save now."""
        return time.monotonic() >= self._due_at

    def saved(self, save_s: float) -> None:
        """A save took ``save_s`` of the wall: count the next interval from here."""
        past = save_s if self._save_s is None else self._save_s
        self._save_s = past + SMOOTHING * (save_s - past)
        if self._hazard_per_hour is not None:
            cost_s = self._save_s * self._speed
            self.interval_s = checkpoint_interval_s(
                hazard_per_hour=self._hazard_per_hour,
                blocking_save_s=cost_s,
                noticed_share=self._noticed_share,
                persist_s=cost_s,
            )
        self._due_at = time.monotonic() + self.interval_s / self._speed

    def failed(self) -> None:
        """A save failed: try again soon, but not at each step."""
        self._due_at = time.monotonic() + min(RETRY_S, self.interval_s) / self._speed
