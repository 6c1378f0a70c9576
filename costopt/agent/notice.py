"""The interruption notice as a cloud's metadata service would tell it, here from a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider takes the node: ``action`` is "terminate", "stop" or "hibernate"; ``time`` is
    when, as it was told (ISO 8601), or None."""

    action: str
    time: str | None


def read_notice(path: Path) -> Notice | None:
    """The notice, or None where there is none.

    A file {"action": …, "time": …} that exists but cannot be understood is a notice all the same:
    to save once too often costs less than not to save.
    """
    try:
        fields = json.loads(path.read_bytes())
        return Notice(str(fields.get("action", "terminate")), fields.get("time"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError):
        return Notice("terminate", None)
