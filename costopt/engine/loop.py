"""The loop that ticks until every job is over, and the implementations of the clock port.

The clocks: real time, market time that runs faster than real time, and a replay's virtual time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costopt.engine.engine import Engine, TickResult

OnTick = Callable[["TickResult"], None]


def run_until_done(engine: Engine, on_tick: OnTick | None = None) -> TickResult:
    """Tick, sleep to the next multiple of the tick, and repeat until no job needs anything.

    It wakes earlier for a job that its strategy may start between two ticks.
    A late tick is not made up for. KeyboardInterrupt passes through; see ``stop_all``.
    """
    clock, tick_s = engine.world.clock, engine.settings.tick_s
    began = clock.now()
    while True:
        result = engine.tick()
        if on_tick is not None:
            on_tick(result)
        if result.is_done:
            return result
        elapsed_s = (clock.now() - began).total_seconds()
        # A remainder by % may leave a sleep too short for any clock to notice.
        ticks = math.floor(elapsed_s / tick_s + 1e-6) + 1
        wait_s = ticks * tick_s - elapsed_s
        start_at = engine.next_start_at
        if start_at is not None:
            wait_s = min(wait_s, max((start_at - clock.now()).total_seconds(), 0.0))
        clock.sleep(wait_s)


def stop_all(engine: Engine, reason: str, on_tick: OnTick | None = None) -> None:
    """Checkpoint every job, release all nodes and wait until the providers confirm it."""
    engine.stop(reason)
    run_until_done(engine, on_tick)


class WallClock:
    """Real time."""

    speed = 1.0

    def now(self) -> datetime:
        """Return the present, aware UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(max(0.0, seconds))


class ScaledClock:
    """Market time that starts at ``start_at`` and runs ``speed`` times as fast as real time.

    ``elapsed_s`` is how long, in real time, it has been running already. From then on it reads the
    monotonic clock, so a step of the wall clock does not move market time.
    """

    def __init__(self, start_at: datetime, speed: float, elapsed_s: float = 0.0) -> None:
        if speed <= 0:
            raise ValueError("speed must be above 0")
        self.start_at = start_at
        self.speed = speed
        self._began_s = time.monotonic() - elapsed_s

    def now(self) -> datetime:
        """Return the present of the market, aware UTC."""
        return self.start_at + timedelta(seconds=(time.monotonic() - self._began_s) * self.speed)

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` of market time."""
        time.sleep(max(0.0, seconds / self.speed))


class VirtualClock:
    """A replay's time, which advances only by ``sleep``."""

    speed = 1.0

    def __init__(self, start_at: datetime) -> None:
        self._now = start_at

    def now(self) -> datetime:
        """Return the present of the replay, aware UTC."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the time by ``seconds``."""
        self._now += timedelta(seconds=max(0.0, seconds))
