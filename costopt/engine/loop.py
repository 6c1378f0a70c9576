"""Ticks until every job is over."""

from __future__ import annotations

import math
from collections.abc import Callable

from costopt.engine.tick import Engine, TickResult

OnTick = Callable[[TickResult], None]


def run_until_done(engine: Engine, on_tick: OnTick | None = None) -> TickResult:
    """Tick, sleep to the next multiple of the tick, and so on until no job wants anything.

    A late tick is not caught up with. KeyboardInterrupt passes through; see ``stop_all``.
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
        clock.sleep(ticks * tick_s - elapsed_s)


def stop_all(engine: Engine, reason: str, on_tick: OnTick | None = None) -> None:
    """Checkpoint every job, give all nodes back and wait until the providers confirm it."""
    engine.stop(reason)
    run_until_done(engine, on_tick)
