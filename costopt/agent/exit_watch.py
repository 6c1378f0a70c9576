"""Whether a trainer that has reported its end still does something, or hangs in its exit.

A script may go on after its last step, to evaluate or to export: it computes or writes to its log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from costopt.agent.trainer import Trainer

PROC = Path("/proc")
SAMPLES = 20
"""Within the limit."""
IDLE_BELOW = 0.05
"""Of one processor: threads that poll take less, and a computation more."""
UNKNOWN_FACTOR = 4.0
"""Times the limit where only the log is known, as of a container: it may compute without a word."""
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ExitWatch:
    """Watches one trainer from when it has reported that it is done."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._since: float | None = None
        self._sampled_at = 0.0
        self._cpu_s: float | None = None
        self._log_bytes = 0

    def is_hung(self, trainer: Trainer) -> bool:
        """Return whether the trainer has neither computed nor written for the whole limit."""
        now = time.monotonic()
        if self._since is not None and now - self._sampled_at < self.limit_s / SAMPLES:
            return False
        cpu_s, log_bytes = processor_s(trainer.pids), 0
        with suppress(OSError):
            log_bytes = trainer.log_path.stat().st_size
        if self._since is None or log_bytes != self._log_bytes or self._is_busy(cpu_s, now):
            self._since = now
        self._sampled_at, self._cpu_s, self._log_bytes = now, cpu_s, log_bytes
        factor = UNKNOWN_FACTOR if cpu_s is None else 1.0
        return now - self._since >= factor * self.limit_s

    def _is_busy(self, cpu_s: float | None, now: float) -> bool:
        """Whether processors were used since the last sample; unknown counts as no."""
        if cpu_s is None or self._cpu_s is None:
            return False
        return cpu_s - self._cpu_s > IDLE_BELOW * (now - self._sampled_at)


def processor_s(pids: Iterable[int]) -> float | None:
    """Return the processor seconds of living processes and their descendants, None if unknown."""
    children: dict[int, list[int]] = {}
    used_s: dict[int, float] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            pid = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            used_s[pid] = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S
    total_s, rest = 0.0, [pid for pid in pids if pid in used_s]
    if not rest:
        return None
    while rest:
        pid = rest.pop()
        total_s += used_s.get(pid, 0.0)
        rest += children.get(pid, [])
    return total_s
