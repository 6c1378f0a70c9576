"""Backups of what a daemon keeps in files, and the way back from a corrupt one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from costopt.controller.live_run import LEDGER
from costopt.database.backup import (
    backup_time,
    create_backup,
    find_corruption,
    list_backups,
    restore,
)
from costopt.domain.errors import LedgerError
from costopt.ledger.locks import assert_unused
from costopt.ledger.sql_ledger import open_sqlite_ledger, salvage_events
from costopt.registry.registry import REGISTRY

BACKUPS = "backups"


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A file that was restored: from which copy of when, where the damaged one is now.

    ``events`` of the damaged ledger, made after the copy, could be saved.
    """

    file: Path
    copy: Path
    copied_at: datetime
    damaged: Path | None
    events: int


class Backups:
    """Of a state directory; the copies lie in a folder in it."""

    def __init__(self, state_dir: Path, keep: int) -> None:
        """``keep`` copies of each file stay."""
        self._state_dir = state_dir
        self._folder = state_dir / BACKUPS
        self._keep = keep
        self._files = (state_dir / LEDGER, state_dir / REGISTRY)

    def check(self) -> None:
        """To be called before the files are opened. Raises LedgerError for a corrupt one."""
        for file in self._files:
            fault = find_corruption(file)
            if fault:
                raise LedgerError(
                    f"{file} is corrupt ({fault})", hint=self._advice(file), code="corrupt"
                )

    def make(self, now: datetime) -> tuple[Path, ...]:
        """A new copy of each. Raises LedgerError, also for a corrupt file; no copy is lost then."""
        return tuple(
            create_backup(file, self._folder, self._keep, now)
            for file in self._files
            if file.exists()
        )

    def restore(self, now: datetime) -> tuple[RestoredFile, ...]:
        """Restore the files that are corrupt or lost, of which no daemon may be using one.

        What the damaged ledger still tells of the time after the copy is saved. Raises LedgerError.
        """
        if not self._state_dir.is_dir():
            raise LedgerError(
                f"there is no state directory {self._state_dir}",
                hint="name the daemon's with --state-dir",
                code="no_state_directory",
            )
        with assert_unused(self._state_dir / LEDGER):
            return tuple(self._restore(file, now) for file in self._files if self._missing(file))

    def _missing(self, file: Path) -> bool:
        if file.exists():
            return bool(find_corruption(file))
        return bool(list_backups(file, self._folder))

    def _restore(self, file: Path, now: datetime) -> RestoredFile:
        copy, damaged = restore(file, self._folder, now)
        events = 0
        if file.name == LEDGER and damaged is not None:
            with open_sqlite_ledger(file) as ledger:
                events = salvage_events(damaged, ledger)
        return RestoredFile(file, copy, backup_time(copy), damaged, events)

    def _advice(self, file: Path) -> str:
        copies = list_backups(file, self._folder)
        if not copies:
            return (
                f"there is no backup in {self._folder}; save what is left:"
                f" sqlite3 {file} .recover | sqlite3 NEW"
            )
        return (
            f"restore the backup of {backup_time(copies[-1]):%Y-%m-%d %H:%M} UTC:"
            f" costopt restore --state-dir {self._state_dir}"
        )
