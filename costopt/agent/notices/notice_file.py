"""A notice that appears as a file, as the embedded provider tells it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from costopt.agent.notices.source import NoNotices, Notice


class FileNoticeSource(NoNotices):
    """The file {"action": …, "time": …, "noticed_at": …}; times in ISO 8601.

    They are the provider's, whose clock runs ``speed`` times faster than the wall: the deadline is
    counted from when the file appeared. A file that exists but cannot be understood is a notice
    all the same: to save once too often costs less than not to save.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.speed = 1.0

    def notice(self) -> Notice | None:
        """The notice, or None where there is no file."""
        try:
            appeared_at = self.path.stat().st_mtime
            fields = json.loads(self.path.read_bytes())
            action, time = str(fields.get("action", "terminate")), fields.get("time")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError):
            return Notice("terminate", None)
        left_s = _seconds_between(fields.get("noticed_at"), time)
        deadline_at = None if left_s is None else appeared_at + left_s / self.speed
        return Notice(action, time if isinstance(time, str) else None, deadline_at)


def _seconds_between(start: object, end: object) -> float | None:
    if not isinstance(start, str) or not isinstance(end, str):
        return None
    try:
        return max(
            0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
        )
    except (ValueError, TypeError):
        return None
