"""Flipped bits in a ledger, in its backups and on a server: found, or without effect."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.controller.state_dir import LEDGER
from costopt.daemon.loop.backups import Backups
from costopt.domain.errors import LedgerError
from costopt.domain.events import Event, JobFinished, ProgressReported, RunStopped
from costopt.ledger import sql_ledger
from costopt.ledger.base import DurableLedger, open_ledger
from costopt.ledger.checksums import DAMAGED, seal, unseal
from costopt.ledger.fold_cache import save_folds, summaries
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.ledger.stored_events import find_damage
from tests.support.daemon_fixtures import DaemonScene
from tests.support.errors import has_code
from tests.support.postgres_server import PostgresServer
from tests.unit.ledger.test_account import submitted

AT = datetime(2026, 1, 1, tzinfo=UTC)
FLIPS = 1000
KINDS = (ProgressReported, RunStopped, JobFinished)


def stopped(reason: str, job: str = "a") -> RunStopped:
    return RunStopped(at=AT, job=job, reason=reason)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of jobs that ran, with its folds, in one file."""
    folder = tmp_path_factory.mktemp("ledger")
    scene = DaemonScene(folder)
    scene.submit("one", "two", "three", hours=0.5)
    scene.go(60)
    save_folds(scene.ledger)
    scene.close()
    with closing(sqlite3.connect(folder / LEDGER)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.execute("PRAGMA journal_mode = WAL")
    assert not list(folder.glob(f"{LEDGER}-*"))
    return folder / LEDGER


def read(ledger: DurableLedger, kinds: Sequence[type[Event]] = KINDS) -> list[Any]:
    """All that is asked of a ledger."""
    jobs = ledger.jobs()
    now = AT + timedelta(days=400)
    return [
        jobs,
        ledger.last_seqs(),
        list(ledger.events()),
        [list(ledger.events(job)) for job in jobs],
        [list(ledger.newest(kind, job)) for kind in kinds for job in jobs],
        [list(ledger.last_of_each(kind)) for kind in kinds],
        list(summaries(ledger, lambda _, last_at: max(now, last_at))),
    ]


def outcome(path: Path, truth: list[Any], kinds: Sequence[type[Event]] = KINDS) -> str:
    """What becomes of a reader of a damaged file."""
    try:
        with open_ledger(path, create=False) as ledger:
            return "harmless" if read(ledger, kinds) == truth else "believed"
    except LedgerError as error:
        return "leads to restore" if "restore" in str(error.hint) else error.message


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def bits(path: Path, seed: int, count: int) -> list[int]:
    return random.Random(seed).sample(range(path.stat().st_size * 8), count)


def clear(path: Path, sound: bytes) -> None:
    for left in path.parent.glob(f"{path.name}-*"):
        left.unlink()
    path.write_bytes(sound)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_a_thousand_flipped_bits_none_is_believed(template: Path, tmp_path: Path) -> None:
    path, sound = tmp_path / LEDGER, template.read_bytes()
    path.write_bytes(sound)
    with open_ledger(path) as ledger:
        truth = read(ledger)
    outcomes = Counter[str]()
    for bit in bits(template, 1, FLIPS):
        clear(path, sound)
        flip(path, bit)
        outcomes[outcome(path, truth)] += 1
    assert outcomes.keys() <= {"harmless", "leads to restore"}, outcomes
    assert outcomes["leads to restore"] > FLIPS / 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_in_a_file_too_large_to_be_checked_at_once_texts_are_not_believed(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_ledger, "MAX_CHECKED_BYTES", 0)
    path, sound = tmp_path / LEDGER, template.read_bytes()
    path.write_bytes(sound)
    with open_ledger(path) as ledger:
        truth = read(ledger)
    with closing(sqlite3.connect(path)) as raw:
        texts = [body for (body,) in raw.execute("SELECT body FROM events")]
    chances, outcomes = random.Random(2), Counter[str]()
    for _ in range(FLIPS // 5):
        text = chances.choice(texts).encode()
        clear(path, sound)
        start = sound.index(text)
        flip(path, 8 * start + chances.randrange(8 * len(text)))
        outcomes[outcome(path, truth)] += 1
    assert outcomes.keys() == {"leads to restore"}, outcomes


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nor_are_indexes_where_they_say_what_a_job_is_made_of(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_ledger, "MAX_CHECKED_BYTES", 0)
    path, sound = tmp_path / LEDGER, template.read_bytes()
    path.write_bytes(sound)
    with open_ledger(path) as ledger:
        truth = read(ledger, kinds=())
    outcomes = Counter[str]()
    for bit in bits(template, 6, FLIPS // 3):
        clear(path, sound)
        flip(path, bit)
        outcomes[outcome(path, truth, kinds=())] += 1
    assert outcomes.keys() == {"harmless", "leads to restore"}, outcomes


def test_a_job_that_is_submitted_while_jobs_are_read_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / LEDGER
    with open_sqlite_ledger(path) as ledger, open_sqlite_ledger(path) as other:
        read = ledger._read

        def read_then_submit(*query: Any) -> list[Any]:
            rows = read(*query)
            other.append(submitted(job="late"))
            return rows

        ledger.append(submitted(job="early"))
        monkeypatch.setattr(ledger, "_read", read_then_submit)
        assert list(ledger.last_seqs()) == ["early"]
        monkeypatch.undo()
        assert list(ledger.last_seqs()) == ["early", "late"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_daemon_restores_what_its_check_finds(template: Path, tmp_path: Path) -> None:
    path, sound = tmp_path / LEDGER, template.read_bytes()
    path.write_bytes(sound)
    backups = Backups(tmp_path, keep=3)
    backups.make(AT)
    with open_ledger(path) as ledger:
        truth = read(ledger)
    restored = 0
    for bit in bits(template, 3, FLIPS // 10):
        clear(path, sound)
        flip(path, bit)
        restored += len(backups.restore(AT + timedelta(seconds=restored)))
        backups.check()
        with open_ledger(path) as ledger:
            assert read(ledger) == truth
    assert restored > FLIPS / 100


@pytest.mark.slow
def test_a_backup_with_a_flipped_bit_is_passed_over(template: Path, tmp_path: Path) -> None:
    path = tmp_path / LEDGER
    path.write_bytes(template.read_bytes())
    backups = Backups(tmp_path, keep=3)
    (older,), (newer,) = backups.make(AT), backups.make(AT + timedelta(hours=1))
    copy = newer.read_bytes()
    for bit in bits(newer, 4, 50):
        newer.write_bytes(copy)
        flip(newer, bit)
        path.unlink(missing_ok=True)
        (restored,) = backups.restore(AT)
        assert restored.copy == older
        assert restored.copied_at == AT
    newer.write_bytes(copy)
    path.unlink()
    (restored,) = backups.restore(AT)
    assert restored.copy == newer


def test_a_backup_of_an_older_version_has_no_checksum_and_is_used(tmp_path: Path) -> None:
    with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
        ledger.append(stopped("1"))
    backups = Backups(tmp_path, keep=3)
    (copy,) = backups.make(AT)
    name = copy.name.split(".")
    old = copy.rename(copy.with_name(".".join([*name[:-2], name[-1]])))
    (tmp_path / LEDGER).unlink()
    (restored,) = backups.restore(AT)
    assert (restored.copy, restored.copied_at) == (old, AT)


def _edit(statement: str, *values: object) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with closing(sqlite3.connect(path)) as raw:
            for trigger in ("events_never_change", "events_never_vanish"):
                raw.execute(f"DROP TRIGGER {trigger}")
            raw.execute(statement, values)
            raw.commit()

    return run


@pytest.mark.parametrize(
    "edit",
    [
        _edit("UPDATE events SET body = replace(body, 'reason 2', 'reason 3') WHERE seq = 2"),
        _edit("UPDATE events SET body = x'ff' || body WHERE seq = 2"),
        _edit("UPDATE events SET body = CAST(x'7bff7d' AS TEXT) WHERE seq = 2"),
        _edit("UPDATE events SET body = x'7b7d' WHERE seq = 2"),
        _edit("UPDATE events SET body = '' WHERE seq = 2"),
        _edit("UPDATE events SET body = (SELECT body FROM events WHERE seq = 1) WHERE seq = 2"),
        _edit("DELETE FROM events WHERE seq = 2"),
        _edit("UPDATE events SET job = 'b' WHERE seq = 2"),
        _edit("UPDATE events SET kind = 'JobFinished' WHERE seq = 2"),
    ],
    ids=["text", "bytes", "no UTF-8", "a BLOB", "empty", "another's", "gone", "job", "kind"],
)
def test_damaged_text_leads_to_restore_in_words(
    tmp_path: Path, edit: Callable[[Path], None]
) -> None:
    path = tmp_path / LEDGER
    with open_sqlite_ledger(path) as ledger:
        ledger.append(*(stopped(f"reason {n}") for n in range(1, 4)))
        Backups(tmp_path, keep=1).make(AT)
    edit(path)
    with pytest.raises(LedgerError) as caught, open_ledger(path) as ledger:
        read(ledger)
    assert "costopt daemon restore" in str(caught.value.hint)


def test_what_the_command_says_and_restores(tmp_path: Path) -> None:
    path = tmp_path / LEDGER
    with open_sqlite_ledger(path) as ledger:
        ledger.append(*(stopped(f"reason {n}") for n in range(1, 4)))
        Backups(tmp_path, keep=1).make(AT)
        ledger.append(stopped("reason 4"))
    _edit("UPDATE events SET body = replace(body, 'reason 2', 'reason 3') WHERE seq = 2")(path)
    said = CliRunner().invoke(cli, ["events", "a", "--state-dir", str(tmp_path)])
    assert said.exit_code != 0
    assert "costopt daemon restore" in said.output
    done = CliRunner().invoke(cli, ["daemon", "restore", "--state-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    with open_ledger(path) as ledger:
        reasons = [r.event.reason for r in ledger.events() if isinstance(r.event, RunStopped)]
    assert reasons == [f"reason {n}" for n in range(1, 5)]


def test_a_checksum_is_of_the_number_as_well() -> None:
    text = '{"v":1,"kind":"RunStopped"}'
    sealed = seal(text, 7, 6)
    assert json.loads(sealed).keys() == {"v", "kind", "crc32"}
    assert unseal(sealed, 7).text == text
    with pytest.raises(LedgerError, check=has_code(DAMAGED)):
        unseal(sealed, 8)
    after_a_gap = seal(text, 7, 3)
    assert (unseal(after_a_gap, 7).text, unseal(after_a_gap, 7).follows) == (text, 3)
    assert unseal(text, 7).follows is None, "written before there were checksums"


def test_events_without_checksums_stay_readable(tmp_path: Path) -> None:
    path = tmp_path / LEDGER
    with open_sqlite_ledger(path) as ledger:
        ledger.append(*(stopped(f"reason {n}") for n in range(1, 4)))
    _edit("UPDATE events SET body = substr(body, 1, instr(body, ',\"crc32\"') - 1) || '}'")(path)
    assert find_damage(path) == ""
    with open_ledger(path) as ledger:
        ledger.append(stopped("reason 4"))
        reasons = [r.event.reason for r in ledger.events() if isinstance(r.event, RunStopped)]
    assert reasons == [f"reason {n}" for n in range(1, 5)]


@pytest.mark.slow
def test_a_locked_ledger_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / LEDGER
    open_sqlite_ledger(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, check=has_code("SQLITE_BUSY")):
            find_damage(path)


@pytest.mark.worker_group("postgres")
def test_a_damaged_text_on_a_server(postgres: PostgresServer, postgres_url: str) -> None:
    database = f"d{postgres_url.rpartition('/d')[2].partition('?')[0]}"
    with open_ledger(postgres_url) as ledger:
        ledger.append(*(stopped(f"reason {n}") for n in range(1, 4)))
        postgres.sql(
            "ALTER TABLE events DISABLE TRIGGER ALL;"
            " UPDATE events SET body = replace(body, 'reason 2', 'reason 3') WHERE seq = 2",
            database,
        )
        with pytest.raises(LedgerError, check=has_code(DAMAGED)) as caught:
            list(ledger.events("a"))
        assert "restore" in str(caught.value.hint)
