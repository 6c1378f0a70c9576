"""Why a guard says no."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuardViolation:
    """Which guard said no, and why; ``pool`` where it is to be left alone for a while."""

    guard: str
    message: str
    pool: str | None = None
