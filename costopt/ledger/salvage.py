"""What a damaged ledger still tells beyond its backup."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event
from costopt.ledger.codec import decode
from costopt.ledger.sql_ledger import SqlLedger


def salvage_events(damaged: Path, ledger: SqlLedger) -> int:
    """Append to a restored ledger the events that follow its last one in the damaged file.

    Stops at the first that is missing or cannot be read, so that the restored ledger is what the
    damaged one once was. Returns how many were saved. Raises LedgerError where appending fails.
    """
    events = _events_after(damaged, ledger.last_seq())
    ledger.append(*events)
    return len(events)


def _events_after(damaged: Path, last: int) -> list[Event]:
    saved: list[Event] = []
    try:
        with closing(_opened(damaged)) as connection:
            rows = connection.execute(
                "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq", (last,)
            )
            for seq, body in rows:
                if seq != last + len(saved) + 1:
                    break
                saved.append(decode(body))
    except (sqlite3.Error, LedgerError, TypeError):
        pass
    return saved


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=rw", uri=True)
