"""Text for a terminal, which may not steer it: move the cursor, color it, or ask it anything."""

from __future__ import annotations

import re

from costopt.domain.text import displayable_text

_CONTROL_SEQUENCE = "(?:\x1b\\[|\x9b)[0-?]*[ -/]*"
_STRING = "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x80-\x9f]*"
"""Titles, links and what devices are sent. None reaches beyond its line here."""
_SEQUENCES = re.compile(
    f"{_CONTROL_SEQUENCE}[@-~]|{_STRING}(?:\x07|\x1b\\\\|\x9c)|\x1b[ -/]*[0-OQ-WYZ\\\\`-~]"
)
_UNFINISHED = re.compile(f"(?:{_CONTROL_SEQUENCE}|{_STRING}\x1b?|\x1b[ -/]*|\r+)\\Z")
_RETURNS = re.compile("\r+\n?")
MAX_SEQUENCE_CHARACTERS = 1_024
"""Of a sequence whose end is waited for."""


class TerminalTextFilter:
    """Removes from a log, which comes in parts, what would steer the terminal that shows it.

    Escape sequences are left out, a carriage return ends the line, and other control characters
    are replaced by U+FFFD.
    """

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> str:
        """Return what can be displayed; a sequence that the text cuts waits for the next part."""
        text = self._rest + text
        cut = _UNFINISHED.search(text, max(0, len(text) - MAX_SEQUENCE_CHARACTERS))
        end = len(text) if cut is None else cut.start()
        self._rest = text[end:]
        return displayable_text(_RETURNS.sub("\n", _SEQUENCES.sub("", text[:end])))


def terminal_text(text: str) -> str:
    """Return a whole text as ``TerminalTextFilter`` does."""
    return TerminalTextFilter().feed(f"{text}\n").removesuffix("\n")
