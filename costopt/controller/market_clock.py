"""The clock of a simulated cloud, which a later process goes on with."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path

from costopt.domain.errors import StoreError
from costopt.engine.loop import ScaledClock


def load_market_clock(path: Path, start_at: datetime, speed: float) -> ScaledClock:
    """The clock that ``path`` remembers, or a new one that begins at ``start_at``.

    A clock that is remembered keeps its own start and speed. Raises StoreError.
    """
    try:
        known = json.loads(path.read_text())
        elapsed_s = max(0.0, time.time() - float(known["wall_s"]))
        return ScaledClock(
            datetime.fromisoformat(known["start_at"]), float(known["speed"]), elapsed_s
        )
    except FileNotFoundError:
        return _begin(path, start_at, speed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}: the run's clock cannot be read: {error}",
            hint="choose another --state-dir, or remove this one if nothing in it is needed",
            code="unreadable",
        ) from error


def reset_market_clock(path: Path) -> None:
    """Reset the clock, by which nothing has run. Raise StoreError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot remove {path}: {error.strerror}",
            hint="choose a --state-dir that this user may write to",
        ) from error


def _begin(path: Path, start_at: datetime, speed: float) -> ScaledClock:
    known = {"start_at": start_at.isoformat(), "speed": speed, "wall_s": time.time()}
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(known))
        os.replace(fresh, path)  # noqa: PTH105 - atomic, and the same on every Path version
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}",
            hint="free space, or choose a --state-dir that this user may write to",
            code="unwritable",
        ) from error
    return ScaledClock(start_at, speed)
