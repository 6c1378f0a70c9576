"""Whether a process runs, and how it is made to stand still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def is_running(pid: int) -> bool:
    """False for a zombie: nobody's child any more, it waits until init has seen it."""
    return _state(Path(f"/proc/{pid}/stat")) != "Z"


def pause(pid: int) -> None:
    """Stop a process, and wait until each of its threads has: some may run until then."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(thread) not in "TZ" for thread in Path(f"/proc/{pid}/task").glob("*/stat")):
        time.sleep(0.001)


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
