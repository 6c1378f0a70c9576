"""A corrupt file of the daemon: refused with advice, restored from the backup that it made."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.controller.state_dir import LEDGER
from costopt.daemon.loop.backups import BACKUPS, Backups
from costopt.database import backup
from costopt.database.backup import find_corruption
from costopt.domain.control import Mode, Submission
from costopt.domain.errors import LedgerError
from costopt.domain.events import Event, RunStopped
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.registry.registry import REGISTRY, open_registry
from tests.support.errors import has_code
from tests.support.live_daemon import DaemonPlace, awaits_end
from tests.support.live_run import PATIENCE_S, wait_until

AT = datetime(2026, 1, 1, tzinfo=UTC)
PAGE_BYTES = 4096


def events(first: int, count: int) -> list[Event]:
    return [
        RunStopped(at=AT, job="a", reason=f"{n} " + "x" * 300) for n in range(first, first + count)
    ]


def fill(state_dir: Path) -> None:
    """A ledger of 500 events and a registry of one job."""
    with open_sqlite_ledger(state_dir / LEDGER) as ledger:
        ledger.append(*events(0, 500))
    with open_registry(state_dir / REGISTRY) as registry:
        registry.submit(Submission("a", "t", 0, "job", "policy", "/", AT, "ann"))
        registry.set_mode(Mode.ENFORCE, "ann", AT)


def numbers(state_dir: Path) -> list[int]:
    with open_sqlite_ledger(state_dir / LEDGER, create=False) as ledger:
        reported = [r.event for r in ledger.events()]
    return [int(e.reason.split()[0]) for e in reported if isinstance(e, RunStopped)]


def corrupt(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(random.Random(page).randbytes(PAGE_BYTES))


def pages(path: Path) -> int:
    return path.stat().st_size // PAGE_BYTES


def test_a_corrupt_page_is_refused_with_advice_and_restored(tmp_path: Path) -> None:
    fill(tmp_path)
    backups = Backups(tmp_path, keep=3)
    backups.check()
    backups.make(AT)
    with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
        ledger.append(*events(500, 5))
    corrupt(tmp_path / LEDGER, 4)
    with pytest.raises(LedgerError, check=has_code("corrupt")) as caught:
        backups.check()
    assert "2026-01-01 00:00 UTC" in str(caught.value.hint)
    assert f"costopt daemon restore --state-dir {tmp_path}" in str(caught.value.hint)
    done = CliRunner().invoke(cli, ["daemon", "restore", "--state-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert re.search(r"\b5 .*events\b", done.output)
    assert numbers(tmp_path) == list(range(505))
    assert list(tmp_path.glob("ledger.sqlite.corrupt-*"))
    backups.check()
    again = CliRunner().invoke(cli, ["daemon", "restore", "--state-dir", str(tmp_path)])
    assert again.exit_code == 0
    assert len(list(tmp_path.glob("ledger.sqlite.corrupt-*"))) == 1


@pytest.mark.parametrize("name", [LEDGER, REGISTRY])
def test_any_corrupt_page_is_found_or_harmless(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    before = numbers(tmp_path)
    sound = (tmp_path / name).read_bytes()
    backups = Backups(tmp_path, keep=3)
    backups.make(AT)
    for page in random.Random(3).sample(range(1, pages(tmp_path / name) + 1), 8):
        corrupt(tmp_path / name, page)
        with pytest.raises(LedgerError, check=has_code("corrupt")) as caught:
            backups.check()
        assert "costopt daemon restore" in str(caught.value.hint)
        (restored,) = backups.restore(AT + timedelta(seconds=page))
        assert restored.file.name == name
        assert numbers(tmp_path) == before
        with open_registry(tmp_path / REGISTRY) as registry:
            assert registry.mode() is Mode.ENFORCE
        for left in tmp_path.glob(f"{name}-*"):
            left.unlink()
        (tmp_path / name).write_bytes(sound)


def test_what_cannot_be_saved_is_not_made_up(tmp_path: Path) -> None:
    fill(tmp_path)
    backups = Backups(tmp_path, keep=3)
    backups.make(AT)
    with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
        ledger.append(*events(500, 200))
    corrupt(tmp_path / LEDGER, pages(tmp_path / LEDGER) - 4)
    (restored,) = backups.restore(AT)
    kept = numbers(tmp_path)
    assert kept == list(range(500 + restored.events))
    assert 0 < restored.events < 200


def test_a_corrupt_file_is_not_backed_up_and_no_backup_is_lost(tmp_path: Path) -> None:
    fill(tmp_path)
    backups = Backups(tmp_path, keep=2)
    for minute in range(4):
        backups.make(AT + timedelta(minutes=minute))
    kept = sorted((tmp_path / BACKUPS).iterdir())
    assert len(kept) == 4, "two of each file"
    corrupt(tmp_path / LEDGER, 4)
    with pytest.raises(LedgerError, check=has_code("corrupt")):
        backups.make(AT + timedelta(hours=1))
    assert sorted((tmp_path / BACKUPS).iterdir()) == kept


def test_a_damaged_backup_is_passed_over(tmp_path: Path) -> None:
    fill(tmp_path)
    backups = Backups(tmp_path, keep=3)
    older = backups.make(AT)[0]
    newer = backups.make(AT + timedelta(hours=1))[0]
    corrupt(newer, 4)
    corrupt(tmp_path / LEDGER, 4)
    (restored,) = backups.restore(AT)
    assert restored.copy == older
    older.unlink()
    corrupt(tmp_path / LEDGER, 4)
    with pytest.raises(LedgerError, check=has_code("no_backup")) as caught:
        backups.restore(AT)
    assert ".recover" in str(caught.value.hint)


def test_without_a_backup_the_advice_is_to_save_the_rest(tmp_path: Path) -> None:
    fill(tmp_path)
    corrupt(tmp_path / LEDGER, 4)
    with pytest.raises(LedgerError, check=has_code("corrupt")) as caught:
        Backups(tmp_path, keep=3).check()
    assert "costopt daemon restore" not in str(caught.value.hint)
    assert ".recover" in str(caught.value.hint)


def test_a_lost_file_is_restored(tmp_path: Path) -> None:
    fill(tmp_path)
    backups = Backups(tmp_path, keep=3)
    backups.make(AT)
    (tmp_path / REGISTRY).unlink()
    (restored,) = backups.restore(AT)
    assert (restored.file, restored.damaged) == (tmp_path / REGISTRY, None)
    with open_registry(tmp_path / REGISTRY) as registry:
        assert registry.mode() is Mode.ENFORCE


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, check=has_code("no_state_directory")) as caught:
        Backups(tmp_path / "none", keep=1).restore(AT)
    assert caught.value.hint


def test_a_ledger_in_use_is_not_restored(tmp_path: Path) -> None:
    fill(tmp_path)
    backups = Backups(tmp_path, keep=3)
    backups.make(AT)
    with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
        leadership = ledger.leadership("daemon", 15.0)
        leadership.acquire()
        with pytest.raises(LedgerError, check=has_code("in_use")):
            backups.restore(AT)
        leadership.release()
        with ledger.exclusive("a"), pytest.raises(LedgerError, check=has_code("in_use")):
            backups.restore(AT)
        assert backups.restore(AT) == ()


def test_a_backup_is_one_state_while_others_write(tmp_path: Path) -> None:
    fill(tmp_path)
    backups, ended = Backups(tmp_path, keep=1), threading.Event()

    def write() -> None:
        with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
            while not ended.is_set():
                ledger.append(*events(0, 7))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for second in range(5):
            copy = backups.make(AT + timedelta(seconds=second))[0]
            assert find_corruption(copy) == ""
            with closing(sqlite3.connect(copy)) as raw:
                ((count, last),) = raw.execute("SELECT count(*), max(seq) FROM events")
            assert count == last
            assert (count - 500) % 7 == 0
    finally:
        ended.set()
        writer.join()


def test_a_backup_without_room_says_so(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / BACKUPS).write_text("a file where a folder should be")
    with pytest.raises(LedgerError, check=has_code("backup_failed")) as caught:
        Backups(tmp_path, keep=1).make(AT)
    assert caught.value.hint


def test_a_backup_is_not_what_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    monkeypatch.setattr(backup, "ROOM_TIMES", 2**40)
    with pytest.raises(LedgerError, check=has_code("no_space")):
        Backups(tmp_path, keep=1).make(AT)
    assert list((tmp_path / BACKUPS).iterdir()) == []


def test_backups_are_their_owners_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    for copy in Backups(tmp_path, keep=1).make(AT):
        assert copy.stat().st_mode & 0o077 == 0
    assert (tmp_path / BACKUPS).stat().st_mode & 0o077 == 0


def test_the_daemon_backs_up_and_refuses_a_corrupt_file(tmp_path: Path) -> None:
    place = DaemonPlace(tmp_path).write()
    with place.controlled():
        wait_until(
            lambda: len(list((place.state / BACKUPS).glob("*.backup"))) == 2, "backups of both"
        )
    corrupt(place.state / LEDGER, 2)
    with place.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "is corrupt" in said
    assert "costopt daemon restore --state-dir" in said
    assert "Traceback" not in said
    done = CliRunner().invoke(cli, ["daemon", "restore", "--state-dir", str(place.state)])
    assert done.exit_code == 0, done.output
    with place.controlled() as process:
        wait_until(lambda: awaits_end(process), "start of the daemon")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
