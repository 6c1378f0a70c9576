"""The optional dependencies of the HTML reports."""

from __future__ import annotations

from importlib.util import find_spec

from costopt.domain.distribution import install_hint
from costopt.domain.errors import MissingExtraError

REQUIRED_MODULES = ("jinja2", "matplotlib")


def has_report_extra() -> bool:
    """Whether jinja2 and matplotlib are installed."""
    return not _missing()


def require_report_extra() -> None:
    """Raises MissingExtraError unless they are."""
    missing = _missing()
    if missing:
        raise MissingExtraError(
            f"an HTML report needs {' and '.join(missing)}",
            hint=install_hint("report"),
        )


def _missing() -> list[str]:
    return [name for name in REQUIRED_MODULES if find_spec(name) is None]
