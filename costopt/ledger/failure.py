"""What SQLite's refusals mean to the user of a ledger."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from costopt.domain.errors import LedgerError

_MEANINGS: dict[str, tuple[str, str]] = {
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
        "it is no ledger",
        "name another file, or restore the ledger from a backup",
    ),
    "SQLITE_CORRUPT": (
        "it is corrupt",
        "restore it from a backup, or save what is left: sqlite3 LEDGER .recover | sqlite3 NEW",
    ),
    "SQLITE_BUSY": (
        "another process has been writing to it for too long",
        "wait for that process, or stop it",
    ),
    "SQLITE_IOERR": (
        "the disk refused to read or write",
        "check the disk and its free space and quota; nothing was half-written",
    ),
}


def ledger_error(path: Path, error: sqlite3.Error) -> LedgerError:
    """The LedgerError that says what happened to the ledger at ``path``, and what to do."""
    name = getattr(error, "sqlite_errorname", None) or ""
    primary = "_".join(name.split("_")[:2])
    if primary not in _MEANINGS:
        return LedgerError(f"ledger {path}: {error}", hint="check the file and its disk")
    what, hint = _MEANINGS[primary]
    return LedgerError(f"ledger {path}: {what} ({error})", hint=hint)
