"""mkdocs hooks: pages that are generated, and links that work where the code is hosted, too.

A link that leaves docs/ becomes one to the repository; it must lead somewhere. A generated
page is linked as one of the published site, which becomes a link within the site.
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.generated.api import expand_entries  # noqa: E402
from docs.generated.pages import generated_pages  # noqa: E402

DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()(\.\./[^)\s#]*)")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LOG = logging.getLogger("mkdocs.hooks.links")
"""A warning fails a strict build."""


def on_files(files: Any, *, config: Any) -> None:
    """Add the pages that are generated."""
    for name, content in generated_pages().items():
        files.append(File.generated(config, name, content=content))


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

    def within(text: str) -> str:
        return LINK.sub(absolute, site_link.sub(r"](\1.md", text))

    site_link = re.compile(rf"\]\({re.escape(config.extra['site'])}/([\w/]+)\.html")
    parts = FENCE.split(expand_entries(markdown) if page.file.src_uri == "api.md" else markdown)
    return "".join(part if part.startswith("```") else within(part) for part in parts)
