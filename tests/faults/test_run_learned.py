"""A controller that is killed knows again what it had learned of the market."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_run import CALM, PATIENCE_S, UNINTERRUPTIBLE, Place, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

UNHURRIED = ("--speed", "30", "--tick", "6")
"""A pool that nobody looks at for an hour, while no controller runs, counts as never seen."""


def _file(place: Place) -> Path:
    return place.state / "jobs" / "tiny" / "learned.json"


def _learned(place: Place) -> dict[str, Any]:
    """The spot pool's record and when it is of, empty where there is none yet."""
    if not _file(place).exists():
        return {}
    kept = json.loads(_file(place).read_bytes())["learned"]
    return next(({"at": kept["at"], **seen} for _, seen in kept["lifetimes"]), {})


def _kill_when(place: Place, reached: Callable[[], bool]) -> dict[str, Any]:
    """What is kept when the controller, killed as soon as this is so, is gone."""
    with place.controlled(*UNHURRIED, clears=False) as process:
        wait_until(reached, "something learned")
        process.send_signal(signal.SIGKILL)
        process.wait()
    return _learned(place)


def test_a_killed_controller_comes_back_with_its_estimates(tmp_path: Path) -> None:
    place = Place(tmp_path, steps=20_000, deadline="10d", policy="cheapest").write(
        CALM | UNINTERRUPTIBLE
    )
    before = _kill_when(place, lambda: _learned(place).get("watched_h", 0.0) > 0.02)
    after = _kill_when(place, lambda: _learned(place)["watched_h"] > before["watched_h"])
    assert after["watched_h"] > before["watched_h"] > 0.02
    assert after["age_h"] > before["age_h"]
    _file(place).write_bytes(_file(place).read_bytes()[:-9])
    said = _note_of_next(place)
    assert said.count("learned.json is ignored: it is damaged") == 1
    relearned = _learned(place)
    passed = datetime.fromisoformat(relearned["at"]) - datetime.fromisoformat(after["at"])
    assert relearned["watched_h"] <= passed.total_seconds() / 3600
    assert "learned.json" not in _note_of_next(place)


def _note_of_next(place: Place) -> str:
    """What the next controller says until it has learned something, and is interrupted."""
    changed = _file(place).stat().st_mtime_ns
    with place.controlled(*UNHURRIED) as process:
        wait_until(lambda: _file(place).stat().st_mtime_ns > changed, "a tick")
        os.kill(process.pid, signal.SIGINT)
        return process.communicate(timeout=PATIENCE_S)[1]
