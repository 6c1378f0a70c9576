"""Notices that the wall clock was set, by comparing it with the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from costopt.ledger.leadership import monotonic_s

MIN_JUMP_S = 1.0
"""What moves the clock less between two polls is its discipline, such as NTP's slew."""
MAX_READING_S = 0.1
MAX_READINGS = 100


class ClockWatch:
    """Poll it at least every few seconds; a machine that slept does not count as a jump."""

    def __init__(
        self,
        wall_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = monotonic_s,
    ) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._offset_s = self._read_offset_s()

    def poll(self) -> float:
        """Return by how many seconds the wall clock was set since the last poll, negative where it
        was set back; 0.0 where it was not set."""
        before_s, self._offset_s = self._offset_s, self._read_offset_s()
        jump_s = self._offset_s - before_s
        return jump_s if abs(jump_s) >= MIN_JUMP_S else 0.0

    def _read_offset_s(self) -> float:
        """Return the wall clock minus the monotonic one, read at one instant: a process that waits
        for a processor between two readings would see a jump."""
        for _ in range(MAX_READINGS):
            before_s = self._monotonic_s()
            wall_s = self._wall_s()
            if self._monotonic_s() - before_s <= MAX_READING_S:
                break
        return wall_s - before_s
