"""Database errors as messages that say what happened and what to do."""

from __future__ import annotations

import sqlite3

from costopt.domain.errors import LedgerError

RESTORE_HINT = (
    "end the daemon and restore its newest backup: costopt daemon restore --state-dir FOLDER;"
    " without one save the remaining events: sqlite3 FILE .recover | sqlite3 NEW"
)
CORRUPT = "it is corrupt"
NOT_TEXT = "Could not decode to UTF-8"
"""How sqlite3 reports a damaged text, without a code of SQLite."""

_SQLITE: dict[str, tuple[str, str]] = {
    "SQLITE_FULL": (
        "the disk is full",
        "free some space; nothing was half-written, and the job resumes from its events",
    ),
    "SQLITE_READONLY": (
        "it is read-only",
        "give this user write permission on the file and its folder, or name another file",
    ),
    "SQLITE_PERM": ("access is denied", "give this user permission on the file and its folder"),
    "SQLITE_CANTOPEN": (
        "it cannot be opened",
        "check that the folder exists and that this user may write to it",
    ),
    "SQLITE_NOTADB": (
        "it is not a costopt database",
        "name another file, or restore it from a backup",
    ),
    "SQLITE_CORRUPT": (CORRUPT, RESTORE_HINT),
    "SQLITE_BUSY": (
        "another process has been writing to it for too long",
        "wait for that process, or stop it",
    ),
    "SQLITE_IOERR": (
        "the disk refused to read or write",
        "check the disk and its free space and quota; nothing was half-written",
    ),
}

_AGAIN = "it is retried at the next use; check that PostgreSQL runs and can be reached"
_POSTGRES: dict[str, tuple[str, str]] = {
    "08": ("the connection was lost", _AGAIN),
    "57P": ("the server ended the connection", _AGAIN),
    "53100": ("the server's disk is full", "free some space there; nothing was half-written"),
    "53300": ("the server has too many connections", "close some, or raise max_connections"),
    "53": ("the server is short of resources", "look at its log"),
    "22": ("a text or a number cannot be stored", "choose names without control characters"),
    "25006": (
        "the server is read-only",
        "name the primary server: this one is a standby, or was made read-only",
    ),
    "25P03": ("the server ended an idle transaction", _AGAIN),
    "28": (
        "the server refused the user or the password",
        "check the user of the URL; the password may be in PGPASSWORD or ~/.pgpass",
    ),
    "3D000": ("the database does not exist", "create it: createdb NAME"),
    "42501": (
        "permission is denied",
        "give the user of the URL all rights on the tables, or let it own the database",
    ),
    "55P03": ("another process has been writing to it for too long", "wait for it, or stop it"),
    "XX001": ("a page of it is corrupt", "restore the database from a backup"),
    "XX002": ("an index of it is corrupt", "rebuild it: REINDEX DATABASE; then check the disk"),
}


def sqlite_error(what: str, error: sqlite3.Error) -> LedgerError:
    """Return the LedgerError that says what happened to ``what``, such as "ledger PATH".

    Its ``code`` is SQLite's, such as SQLITE_FULL.
    """
    name = getattr(error, "sqlite_errorname", None) or ""
    primary = "_".join(name.split("_")[:2])
    if NOT_TEXT in str(error):
        return corrupt_error(what, error)
    if primary not in _SQLITE:
        hint = f"check the file and its disk; if it is damaged, {RESTORE_HINT}"
        return LedgerError(f"{what}: {error}", hint=hint, code=name)
    meaning, hint = _SQLITE[primary]
    return LedgerError(f"{what}: {meaning} ({error})", hint=hint, code=primary)


def corrupt_error(what: str, why: object) -> LedgerError:
    """Return the LedgerError of a damaged SQLite file."""
    said = " ".join(str(why).split())
    return LedgerError(f"{what}: {CORRUPT} ({said})", hint=RESTORE_HINT, code="SQLITE_CORRUPT")


CONNECTION_FAILURE = "08006"


def connection_lost_error(what: str, why: object) -> LedgerError:
    """Return the LedgerError of a transaction whose connection was lost."""
    meaning, hint = _POSTGRES["08"]
    return LedgerError(f"{what}: {meaning} ({why})", hint=hint, code=CONNECTION_FAILURE)


def postgres_error(what: str, error: BaseException) -> LedgerError:
    """Return the LedgerError of an error of psycopg; its ``code`` is the SQLSTATE.

    Codes: postgresql.org/docs/15/errcodes-appendix.html.
    """
    state = getattr(error, "sqlstate", None) or _state_without_code(error)
    said = " ".join(str(error).split())
    for length in (5, 3, 2):
        if state[:length] in _POSTGRES:
            meaning, hint = _POSTGRES[state[:length]]
            return LedgerError(f"{what}: {meaning} ({said})", hint=hint, code=state)
    return LedgerError(f"{what}: {said}", hint="look at the server's log", code=state)


def text_error(what: str, error: UnicodeEncodeError) -> LedgerError:
    """Return the LedgerError of a text with a lone surrogate, which neither database stores."""
    return LedgerError(
        f"{what}: a name is not valid text: {error}",
        hint="choose another name",
        code="invalid_text",
    )


def _state_without_code(error: BaseException) -> str:
    """Return the SQLSTATE of a failed connection, of which psycopg has only the server's text."""
    from psycopg import InterfaceError, OperationalError

    if not isinstance(error, (InterfaceError, OperationalError)):
        return "22000"
    said = str(error)
    if "authentication failed" in said or "no pg_hba.conf entry" in said:
        return "28P01"
    if "database" in said and "does not exist" in said:
        return "3D000"
    if "role" in said and "does not exist" in said:
        return "28000"
    if "too many clients" in said or "too many connections" in said:
        return "53300"
    return CONNECTION_FAILURE
