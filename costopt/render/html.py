"""Pages from Jinja templates: values are escaped, nothing is loaded."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import costopt
from costopt.domain.errors import StoreError
from costopt.formatting import second_text

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment, Template


def render_page(template: str, *, title: str, made_at: datetime, **context: Any) -> str:
    """One HTML document that holds its own style."""
    return report_template(template).render(
        title=title,
        css=page_css(),
        version=costopt.__version__,
        made_at=second_text(made_at),
        **context,
    )


def report_template(name: str) -> Template:
    """Return one of the templates of reports and notebooks."""
    from jinja2 import PackageLoader

    return template_environment(PackageLoader("costopt.render")).get_template(name)


def template_environment(loader: BaseLoader) -> Environment:
    """What the templates of reports need, also where pages of others include them."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell_html"] = cell_html
    environment.filters["notes_html"] = notes_html
    return environment


def page_css() -> str:
    """The style of all pages."""
    return files("costopt.render").joinpath("templates/page.css").read_text(encoding="utf-8")


def write_page(path: Path, page: str) -> Path:
    """Write whole or not at all; raises StoreError where the disk refuses."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(page, encoding="utf-8", errors="replace")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(
            f"the report {path} cannot be written: {error.strerror}",
            hint="check that the folder exists, may be written to and has space",
            code="unwritable",
        ) from error
    return path


def notes_html(notes: Sequence[str]) -> str:
    """Return paragraphs; indented notes that follow each other are shown as they stand."""
    shown: list[str] = []
    for is_indented, lines in groupby(notes, key=lambda note: note.startswith("  ")):
        if is_indented:
            shown.append(f"<pre>{html.escape(chr(10).join(lines))}</pre>")
        else:
            shown += (f"<p>{cell_html(line)}</p>" for line in lines)
    return "\n".join(shown)


MAX_UNBROKEN = 60
"""Characters up to which a name stays on one line: the longest pool's name has some fifty."""

_NAME = re.compile(r"[^\s,;]*[-/][^\s]*")


def cell_html(text: str) -> str:
    """The text, escaped, with its lines, and with names such as a pool's kept on one line each.

    A browser would break them after any hyphen or slash. What is longer than any name may break.
    """
    lines = (re.split(r"(\s+)", line) for line in text.split("\n"))
    return "<br>".join("".join(map(_word_html, words)) for words in lines)


def _word_html(word: str) -> str:
    escaped = html.escape(word)
    if len(word) > MAX_UNBROKEN:
        return f'<span class="long">{escaped}</span>'
    if _NAME.fullmatch(word):
        kind = "whole path" if "/" in word else "whole"
        return f'<span class="{kind}">{escaped}</span>'
    return escaped
