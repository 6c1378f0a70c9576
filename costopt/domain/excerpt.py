"""Text from elsewhere, cut for one line of a message."""

from __future__ import annotations

MAX_CHARACTERS = 240


def excerpt(text: str) -> str:
    """The first ``MAX_CHARACTERS`` of ``text`` on one line, with "…" where more was cut off."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}…"
