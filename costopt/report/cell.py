"""The text of a table's cell as HTML."""

from __future__ import annotations

import html
import re

MAX_UNBROKEN = 60
"""Characters up to which a name stays on one line: the longest pool's name has some fifty."""

_NAME = re.compile(r"[^\s,;]*[-/][^\s]*")


def cell_html(text: str) -> str:
    """The text, escaped, with its lines, and with names such as a pool's kept on one line each.

    A browser would break them after any hyphen or slash. What is longer than any name may break.
    """
    return "<br>".join(_line_html(line) for line in text.split("\n"))


def _line_html(line: str) -> str:
    return "".join(map(_word_html, re.split(r"(\s+)", line)))


def _word_html(word: str) -> str:
    escaped = html.escape(word)
    if len(word) > MAX_UNBROKEN:
        return f'<span class="long">{escaped}</span>'
    if _NAME.fullmatch(word):
        kind = "whole path" if "/" in word else "whole"
        return f'<span class="{kind}">{escaped}</span>'
    return escaped
