"""When the next checkpoint is due."""

from __future__ import annotations

import time

from costopt.domain.interval import explained_interval

DEFAULT_INTERVAL_S = 1800.0
RETRY_S = 30.0
SMOOTHING = 0.3


class SaveInterval:
    """Intervals in the job's time, which runs ``speed`` times faster than the wall.

    With ``hazard_per_hour`` (of the whole gang) the interval follows the measured blocking time
    of a save, and is no shorter than a save takes to be durable; without, it is ``interval_s``, or
    half an hour where that is None. ``reason`` says what a measured interval follows from, in
    words; it is "" until one was measured.
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
        self.reason = ""
        self._hazard_per_hour = hazard_per_hour
        self._noticed_share = noticed_share
        self.speed = speed
        self._save_s: float | None = None
        self._persist_s: float | None = None
        self._due_at = time.monotonic() + self.interval_s / speed

    def is_due(self) -> bool:
        """Whether to save now."""
        return time.monotonic() >= self._due_at

    def begun(self) -> None:
        """A save was begun: count the next interval from here."""
        self._due_at = time.monotonic() + self.interval_s / self.speed

    def saved(self, save_s: float, persist_s: float | None = None) -> None:
        """A save stopped the training for ``save_s`` of the wall; the next interval begins.

        It was durable after ``persist_s``; None where the training waited for that.
        """
        self._save_s = _smoothed(self._save_s, save_s)
        self._persist_s = _smoothed(self._persist_s, save_s if persist_s is None else persist_s)
        if self._hazard_per_hour is not None:
            chosen = explained_interval(
                hazard_per_hour=self._hazard_per_hour,
                blocking_save_s=self._save_s * self.speed,
                noticed_share=self._noticed_share,
                persist_s=self._persist_s * self.speed,
            )
            self.interval_s, self.reason = chosen.interval_s, chosen.reason
        self.begun()

    def failed(self) -> None:
        """A save failed: try again soon, but not at each step."""
        self._due_at = time.monotonic() + min(RETRY_S, self.interval_s) / self.speed


def _smoothed(past: float | None, value: float) -> float:
    return value if past is None else past + SMOOTHING * (value - past)
