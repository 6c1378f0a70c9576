"""The optional dependencies of the HTML reports."""

from __future__ import annotations

from importlib.util import find_spec

from costopt.domain.errors import MissingExtraError


def require_report_extra() -> None:
    """Raises MissingExtraError unless jinja2 and matplotlib are installed."""
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"an HTML report needs {' and '.join(missing)}",
            hint='install the extra: pip install "costopt[report]"',
        )
