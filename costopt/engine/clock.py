"""The clocks behind the port: the wall, a wall that runs faster, and a replay's."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta


class WallClock:
    """Real time."""

    speed = 1.0

    def now(self) -> datetime:
        """The present, aware UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(max(0.0, seconds))


class ScaledClock:
    """Market time that starts at ``start_at`` and runs ``speed`` times as fast as the wall.

    ``elapsed_s`` is how long, by the wall, it has been running already. From then on it reads the
    monotonic clock, so a step of the wall clock does not move market time.
    """

    def __init__(self, start_at: datetime, speed: float, elapsed_s: float = 0.0) -> None:
        if speed <= 0:
            raise ValueError("speed must be above 0")
        self.start_at = start_at
        self.speed = speed
        self._began_s = time.monotonic() - elapsed_s

    def now(self) -> datetime:
        """The present of the market, aware UTC."""
        return self.start_at + timedelta(seconds=(time.monotonic() - self._began_s) * self.speed)

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` of market time."""
        time.sleep(max(0.0, seconds / self.speed))


class VirtualClock:
    """A replay's time: it stands still until somebody sleeps."""

    speed = 1.0

    def __init__(self, start_at: datetime) -> None:
        self._now = start_at

    def now(self) -> datetime:
        """The present of the replay."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Jump ahead."""
        self._now += timedelta(seconds=max(0.0, seconds))
