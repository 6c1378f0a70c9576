"""Reads the events of a ledger's rows, and finds damaged ones in a file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from costopt.database.failures import sqlite_error
from costopt.domain.errors import LedgerError
from costopt.domain.events import Event
from costopt.ledger.checksums import UnsealedEvent, damaged_error, unseal
from costopt.ledger.codec import decode

_OF_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")
"""The last is that of a missing table."""


def sound_event(seq: int, body: object, follows: int | None = None) -> UnsealedEvent:
    """Return the text of a row's event, which was read after number ``follows`` if that is known.
    Raises LedgerError where it is not what was written."""
    unsealed = unseal(body, seq)
    if None not in (follows, unsealed.follows) and unsealed.follows != follows:
        raise damaged_error(f"it follows event {unsealed.follows}, which is missing")
    return unsealed


def check_lookup(event: Event, job: str | None, kind: type[Event]) -> None:
    """Raise LedgerError for an event that an index names as one of another job or kind."""
    if not isinstance(event, kind) or job not in (None, event.job):
        raise damaged_error(f"an index names it as {kind.__name__} of job {job!r}")


def find_damage(path: Path) -> str:
    """Return what is wrong with the first damaged event of a ledger that is a file, "" where all
    are as they were written. Raises LedgerError where the file cannot be read, such as one that is
    locked."""
    follows = 0
    try:
        with closing(_opened(path)) as connection:
            for seq, body in connection.execute("SELECT seq, body FROM events ORDER BY seq"):
                try:
                    unsealed = sound_event(seq, body, follows)
                    if unsealed.follows is None:
                        decode(unsealed.text)
                except LedgerError as error:
                    return f"event {seq}: {error.message}"
                follows = seq
    except UnicodeDecodeError as error:
        return str(error)
    except sqlite3.Error as error:
        # Python's own error, of text that is not UTF-8, has no name.
        if getattr(error, "sqlite_errorname", "SQLITE_ERROR").startswith(_OF_DAMAGE):
            return str(error)
        raise sqlite_error(str(path), error) from error
    return ""


def events_after(damaged: Path, last: int) -> list[Event]:
    """Return the events of a damaged file that follow number ``last``, up to the first that is
    missing or cannot be read."""
    saved: list[Event] = []
    try:
        with closing(_opened(damaged)) as connection:
            rows = connection.execute(
                "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq", (last,)
            )
            for seq, body in rows:
                if seq != last + len(saved) + 1:
                    break
                saved.append(decode(sound_event(seq, body).text))
    except (sqlite3.Error, LedgerError, TypeError, UnicodeDecodeError):
        pass
    return saved


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=rw", uri=True)
