"""Untrusted text: excerpts for messages, and text made safe to encode, store and display."""

from __future__ import annotations

import re

MAX_EXCERPT_CHARACTERS = 240


def excerpt(text: str) -> str:
    """Return the first ``MAX_EXCERPT_CHARACTERS`` on one line, with "…" where more was cut off."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_EXCERPT_CHARACTERS else f"{line[:MAX_EXCERPT_CHARACTERS]}…"


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MAX_CHARACTERS = 4_096
"""Of a text that a node reports: the maximum length of a path, and above that of our messages."""

_UNENCODABLE = re.compile("[\ud800-\udfff]")
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u202a-\u202e\u2066-\u2069"  # characters that reverse the direction of the text around them
    "\ud800-\udfff]"
)


def encodable_text(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
    return text if text.isascii() else _UNENCODABLE.sub(REPLACEMENT, text)


def displayable_text(text: str) -> str:
    """Return the text with each character that cannot be encoded, or that changes how the text
    around it is displayed, replaced by U+FFFD."""
    return _UNSAFE.sub(REPLACEMENT, text)


def untrusted_text(text: str) -> str:
    """Return at most ``MAX_CHARACTERS`` of a text, as ``displayable_text`` does."""
    return displayable_text(text[:MAX_CHARACTERS])
