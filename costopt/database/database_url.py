"""Where a database is: a SQLite file, or a PostgreSQL server by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from costopt.domain.errors import LedgerError, MissingExtraError, install_hint

if TYPE_CHECKING:
    from sqlalchemy import URL

URL_MARK = "://"
POSTGRESQL_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
DRIVER = "postgresql+psycopg"


def is_url(place: Path | str) -> bool:
    """Return whether ``place`` is the URL of a server, not a file."""
    return isinstance(place, str) and URL_MARK in place


def postgres_url(text: str) -> URL:
    """Return the URL for SQLAlchemy. Raises LedgerError for another scheme, MissingExtraError.

    The message never contains the password.
    """
    try:
        import psycopg  # noqa: F401
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise MissingExtraError(
            "a PostgreSQL database needs SQLAlchemy and psycopg", hint=install_hint("daemon")
        ) from error
    scheme = text.partition(URL_MARK)[0]
    hint = "write it as postgresql://USER@HOST:5432/DATABASE"
    if scheme not in POSTGRESQL_SCHEMES:
        raise LedgerError(
            f"no database is reached by {scheme}://", hint=hint, code="unknown_scheme"
        )
    try:
        return make_url(text).set(drivername=DRIVER)
    except (ArgumentError, ValueError) as error:
        raise LedgerError(f"a {scheme}:// URL cannot be read", hint=hint) from error


def redacted_url(url: URL) -> str:
    """Return the URL for messages and logs, without passwords, also in its options."""
    host = {name: url.query[name] for name in ("host", "port") if name in url.query}
    return url.set(drivername="postgresql", query=host).render_as_string(hide_password=True)
