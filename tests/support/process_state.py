"""Whether a process runs."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """False for a zombie: nobody's child any more, it waits until init has seen it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
