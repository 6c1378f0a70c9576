"""When this process began."""

from __future__ import annotations

import os
import time
from pathlib import Path

START_FIELD = 19
"""Of /proc/self/stat behind the name: starttime, in clock ticks since boot (proc(5))."""


def process_start_time() -> float:
    """Wall time in POSIX seconds; the present where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[START_FIELD]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.time()
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
