"""mkdocs hook: a link that leaves docs/ becomes one to the repository; it must lead somewhere."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()(\.\./[^)\s#]*)")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LOG = logging.getLogger("mkdocs.hooks.links")
"""A warning fails a strict build."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:
    """Return the page with absolute links to what is in the repository and not in docs/."""
    folder = (DOCS / page.file.src_uri).parent

    def absolute(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if target.is_relative_to(DOCS):
            return match[1]
        if not target.exists():
            LOG.warning("%s links to %s, which does not exist", page.file.src_uri, match[1])
        kind = "tree" if target.is_dir() else "blob"
        path = target.relative_to(ROOT).as_posix()
        return f"{config.extra['repository']}/{kind}/main/{path}"

    parts = FENCE.split(markdown)
    return "".join(p if p.startswith("```") else LINK.sub(absolute, p) for p in parts)
