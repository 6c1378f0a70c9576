"""The outcome of replays of a job that has not begun."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.plan import Forecast

MAX_REPLAYS, VERIFY_LIMIT_S = 1000, 60.0


@dataclass(frozen=True, slots=True)
class Replays:
    """The outcome of the ``done`` ones of the ``requested`` replays, in ``limit_s`` seconds.

    ``in_time`` of them met the deadline; ``forecast`` is None where none was done. ``source`` says
    what the futures were drawn from, ``failure`` why the strategy failed first, and is empty where
    it did not.
    """

    requested: int
    done: int
    in_time: int
    limit_s: float
    source: str
    forecast: Forecast | None
    failure: str = ""
