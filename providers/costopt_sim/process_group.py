"""Everything that a node runs, found and killed whole."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

FOLDER_VARIABLE = "COSTOPT_NODE_FOLDER"
SWEEP_S = 5.0


def started_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where it is gone or unknown.

    Field 22 of /proc/<pid>/stat (proc(5)), counted after the command's name, which may hold
    spaces. A zombie is gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def is_running(pid: int, ticks: int | None) -> bool:
    """Whether this very process runs."""
    if Path("/proc/self/stat").exists():
        return ticks is not None and started_ticks(pid) == ticks
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_node(folder: Path, pid: int | None) -> None:
    """SIGKILL the node's process group, then whatever carries the node's mark elsewhere.

    Trainers may sit in sessions of their own. They inherit the environment, in which the node's
    folder is named, so on Linux nothing of the node is missed.
    """
    if pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + SWEEP_S
    while (marked := _marked(folder)) and time.monotonic() < deadline:
        for straggler in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(straggler, signal.SIGKILL)
        time.sleep(0.01)


def _marked(folder: Path) -> list[int]:
    mark = f"{FOLDER_VARIABLE}={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return [pid for pid in found if started_ticks(pid) is not None]
