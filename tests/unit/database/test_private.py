"""State directories and database files are their owner's alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.controller.state_dir import LEDGER, exposure_note, make_state_dir
from costopt.daemon.loop.backups import Backups
from costopt.domain.errors import LedgerError, StoreError
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.registry.registry import REGISTRY, open_registry

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Of the databases, their companions and copies."""
    return {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*.sqlite*")
        if path.is_file() and not path.name.endswith(".lock")
    }


def test_files_their_companions_and_copies_are_private(tmp_path: Path) -> None:
    with open_sqlite_ledger(tmp_path / LEDGER), open_registry(tmp_path / REGISTRY):
        Backups(tmp_path, 2).make(NOW)
        made = modes(tmp_path)
    assert {name.rpartition("-")[2] for name in made} >= {"wal", "shm"}
    assert {name for name in made if name.endswith(".backup")}
    assert set(made.values()) == {0o600}


@pytest.mark.parametrize("name", [LEDGER, REGISTRY])
def test_a_file_that_others_could_read_becomes_private(tmp_path: Path, name: str) -> None:
    opened = open_sqlite_ledger if name == LEDGER else open_registry
    path = tmp_path / name
    opened(path).close()
    path.chmod(0o644)
    with opened(path):
        assert set(modes(tmp_path).values()) == {0o600}


def test_what_is_restored_is_private(tmp_path: Path) -> None:
    open_sqlite_ledger(tmp_path / LEDGER).close()
    Backups(tmp_path, 2).make(NOW)
    (tmp_path / LEDGER).write_bytes(b"damaged" * 1000)
    (tmp_path / LEDGER).chmod(0o644)
    (restored,) = Backups(tmp_path, 2).restore(NOW)
    assert restored.damaged is not None
    assert set(modes(tmp_path).values()) == {0o600}


def test_a_reader_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        open_sqlite_ledger(tmp_path / LEDGER, create=False)
    assert modes(tmp_path) == {}


def test_a_new_state_directory_is_private(tmp_path: Path) -> None:
    state_dir = tmp_path / "new" / "state"
    assert make_state_dir(state_dir, "jobs/one").is_dir()
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700
    assert exposure_note(state_dir) is None
    make_state_dir(state_dir)


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o2770])
def test_an_existing_directory_stays_as_it_is_and_is_named(mode: int, tmp_path: Path) -> None:
    state_dir = tmp_path / "my state"
    state_dir.mkdir()
    state_dir.chmod(mode)
    make_state_dir(state_dir, "jobs/one")
    assert stat.S_IMODE(state_dir.stat().st_mode) == mode
    note = exposure_note(state_dir)
    assert note is not None
    assert f"chmod 700 '{state_dir}'" in note


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=str(tmp_path / "file")):
        make_state_dir(tmp_path / "file" / "state", "jobs/one")
    assert exposure_note(tmp_path / "missing") is None
