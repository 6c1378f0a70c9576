"""What a run has learned of its pools, kept for the controller after this one.

One small file beside the run's clock, replaced as a whole at every tick in which something was
learned: {"schema", "learned", "check"} in JSON, ``check`` being a digest of ``learned``. A
controller that was killed knows again what it knew at its last whole tick. What cannot be
read is reported and learned from the prior; no run stops for it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from costopt.market.hazard import LearnedHazard
from costopt.market.lifetime import LifetimeModel
from costopt.store.atomic_file import write_atomic

SCHEMA = "costopt.learned/1"

CLOCKS_DIFFER = timedelta(minutes=10)
"""What is of a later time than this would stand in the way of all that is learned before it."""


class LearnedState:
    """``lifetimes`` is None where the strategy learns none."""

    def __init__(self, path: Path, lifetimes: LifetimeModel | None, hazards: LearnedHazard) -> None:
        self._path = path
        self._lifetimes = lifetimes
        self._hazards = hazards
        self._kept = b""
        self._failed = False

    def forget(self) -> str | None:
        """Begin from the priors: nothing has run yet. What went wrong, None where nothing did."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            return f"{self._path} cannot be removed: {error.strerror}"
        return None

    def load(self, now: datetime) -> str | None:
        """Know again what the file holds. Why nothing was recalled; None where there is no file."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._reset(error.strerror or str(error))
        try:
            learned = _read(data)
            if datetime.fromisoformat(learned["at"]) > now + CLOCKS_DIFFER:
                return self._reset("it is of a later time than now")
            if self._lifetimes is not None:
                self._lifetimes.from_json(learned["lifetimes"])
            self._hazards.from_json(learned["hazards"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._reset("it is damaged, or of another version")
        self._kept = data
        return None

    def save(self, now: datetime) -> str | None:
        """Write what is known. Return the failure, once for as long as it lasts."""
        if self._lifetimes is not None:
            self._lifetimes.forget(now)
        data = _written({
            "at": now.isoformat(),
            "lifetimes": [] if self._lifetimes is None else self._lifetimes.to_json(),
            "hazards": self._hazards.to_json(),
        })  # fmt: skip
        if data == self._kept:
            return None
        failed_before, self._failed = self._failed, False
        try:
            write_atomic(self._path, data)
        except OSError as error:
            self._failed = True
            kept = f"{self._path} cannot be written: {error.strerror}; what is learned is not kept"
            return None if failed_before else kept
        self._kept = data
        return None

    def _reset(self, why: str) -> str:
        return f"{self._path} is ignored: {why}; capacity lifetimes restart from the prior"


def _written(learned: dict[str, Any]) -> bytes:
    body = {"schema": SCHEMA, "learned": learned, "check": _check(learned)}
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def _read(data: bytes) -> dict[str, Any]:
    """What was written. Raises ValueError, KeyError or TypeError where it is not whole."""
    body = json.loads(data)
    learned: dict[str, Any] = body["learned"]
    if body["schema"] != SCHEMA or body["check"] != _check(learned):
        raise ValueError("not as it was written")
    return learned


def _check(learned: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()[:16]
