"""Backups of the daemon's files, and the restore of corrupt ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from costopt.controller.state_dir import LEDGER
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
from costopt.ledger.stored_events import find_damage
from costopt.registry.registry import REGISTRY

BACKUPS = "backups"


def _find_fault(path: Path) -> str:
    """Return what is wrong with a file of the daemon, or with a copy, whose name begins alike."""
    fault = find_corruption(path)
    if fault or not path.exists() or not path.name.startswith(LEDGER):
        return fault
    return find_damage(path)


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A restored file: when its copy was made, and where the damaged file is now.

    ``events`` counts those of the damaged ledger, recorded after the copy, that could be saved.
    """

    file: Path
    copy: Path
    copied_at: datetime
    damaged: Path | None
    events: int


class Backups:
    """The backups of a state directory, stored in a folder in it."""

    def __init__(self, state_dir: Path, keep: int) -> None:
        """Keep the newest ``keep`` copies of each file."""
        self._state_dir = state_dir
        self._folder = state_dir / BACKUPS
        self._keep = keep
        self._files = (state_dir / LEDGER, state_dir / REGISTRY)

    def check(self) -> None:
        """Raise LedgerError for a corrupt file. Call it before the files are opened."""
        for file in self._files:
            fault = _find_fault(file)
            if fault:
                raise LedgerError(
                    f"{file} is corrupt ({fault})", hint=self._advice(file), code="corrupt"
                )

    def make(self, now: datetime) -> tuple[Path, ...]:
        """Copy each file and return the copies. Raise LedgerError, also for a corrupt file; then no
        copy is lost."""
        return tuple(
            create_backup(file, self._folder, self._keep, now, _find_fault)
            for file in self._files
            if file.exists()
        )

    def restore(self, now: datetime) -> tuple[RestoredFile, ...]:
        """Restore the corrupt and missing files, which no running daemon may use.

        Events of the damaged ledger recorded after the copy are saved as far as they can be read.
        Raise LedgerError.
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
            return bool(_find_fault(file))
        return bool(list_backups(file, self._folder))

    def _restore(self, file: Path, now: datetime) -> RestoredFile:
        copy, damaged = restore(file, self._folder, now, _find_fault)
        events = 0
        if file.name == LEDGER and damaged is not None:
            with open_sqlite_ledger(file) as ledger:
                events = salvage_events(damaged, ledger)
        return RestoredFile(file, copy, backup_time(copy), damaged, events)

    def _advice(self, file: Path) -> str:
        copies = list_backups(file, self._folder)
        if not copies:
            return (
                f"there is no backup in {self._folder}; recover the readable rows:"
                f" sqlite3 {file} .recover | sqlite3 NEW"
            )
        return (
            f"restore the backup of {backup_time(copies[-1]):%Y-%m-%d %H:%M} UTC:"
            f" costopt daemon restore --state-dir {self._state_dir}"
        )
