"""The number of the ledger's last event, noted outside of the database.

A daemon that starts after its database server lost commits sees by it that it did.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MARK = "ledger.last"


class LedgerMark:
    """The number in a file of the state directory. It only warns: what fails is passed over."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / MARK
        self._stored = self.read()

    def read(self) -> int:
        """Return the number that was stored last, 0 where none can be read."""
        with suppress(OSError, ValueError):
            return int(self._path.read_text("ascii"))
        return 0

    def store(self, seq: int) -> None:
        """Store the number, which survives the process and need not survive the machine."""
        if seq == self._stored:
            return
        fresh = self._path.with_name(f"{MARK}.new")
        with suppress(OSError):
            fresh.write_text(str(seq), "ascii")
            os.replace(fresh, self._path)  # noqa: PTH105 - atomic, and the same on every Path version
            self._stored = seq
