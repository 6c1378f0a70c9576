"""The page of the Python API: its list, with what the code says of each entry."""

from __future__ import annotations

import re

ENTRY = re.compile(r"^- \[`(\w+)`\]\(\.\./([\w/]+)\.py\): .+(?:\n  .+)*\n", re.MULTILINE)


def expand_entries(page: str) -> str:
    """Return the page with each entry replaced by the directive that describes it in full."""
    return ENTRY.sub(lambda entry: f"::: {qualified_name(entry)}\n\n", page)


def qualified_name(entry: re.Match[str]) -> str:
    """Return the name of what an entry lists, with its module."""
    return f"{entry[2].replace('/', '.')}.{entry[1]}"
