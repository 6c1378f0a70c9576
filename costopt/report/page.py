"""Pages from templates: everything that is not ours is escaped, and nothing is loaded."""

from __future__ import annotations

import os
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import costopt
from costopt.domain.errors import StoreError
from costopt.formatting import second_text
from costopt.report.cell import cell_html

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment


def render_page(template: str, *, title: str, made_at: datetime, **context: Any) -> str:
    """One HTML document that holds its own style; needs the extra ``report``."""
    from jinja2 import PackageLoader

    return (
        template_environment(PackageLoader("costopt.report"))
        .get_template(template)
        .render(
            title=title,
            css=page_css(),
            version=costopt.__version__,
            made_at=second_text(made_at),
            **context,
        )
    )


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
    return environment


def page_css() -> str:
    """The style of all pages."""
    return files("costopt.report").joinpath("templates/page.css").read_text(encoding="utf-8")


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
        ) from error
    return path
