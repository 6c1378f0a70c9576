"""A ledger that is killed, damaged, misplaced or out of room: one clear message, nothing half."""

from __future__ import annotations

import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.domain.errors import LedgerError
from costopt.domain.events import RunStopped
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.errors import has_code

AT = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 7
UNPRIVILEGED = 65534


def batch(number: int, size: int = BATCH, room: int = 0) -> tuple[RunStopped, ...]:
    return tuple(
        RunStopped(at=AT, job="job", reason=f"{number} " + "x" * room) for _ in range(size)
    )


def batches(path: Path) -> list[list[int]]:
    """The batch number of every event, in groups as they were appended."""
    with open_sqlite_ledger(path, create=False) as ledger:
        numbers = [
            int(r.event.reason.split()[0])
            for r in ledger.events()
            if isinstance(r.event, RunStopped)
        ]
    return [numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH)]


WRITER = textwrap.dedent(
    f"""
    import sys
    from datetime import UTC, datetime
    from costopt.domain.events import RunStopped
    from costopt.ledger.sql_ledger import open_sqlite_ledger

    at = datetime(2026, 1, 1, tzinfo=UTC)
    first = int(sys.argv[2])
    with open_sqlite_ledger(sys.argv[1]) as ledger, ledger.exclusive("job"):
        for number in range(first, first + 100_000):
            ledger.append(
                *(RunStopped(at=at, job="job", reason=f"{{number}} ") for _ in range({BATCH}))
            )
            print(number, flush=True)
    """
)


def test_a_writer_that_is_killed_leaves_whole_batches_only(tmp_path: Path) -> None:
    path, chance = tmp_path / "ledger.db", random.Random(7)
    appended = 0
    for _ in range(20):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(appended)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        for _ in range(chance.randrange(1, 12)):
            acknowledged = int(writer.stdout.readline())
        writer.kill()
        rest = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        if rest:
            acknowledged = int(rest[-1])
        found = batches(path)
        assert found == [[number] * BATCH for number in range(len(found))]
        assert len(found) >= acknowledged + 1, "an acknowledged batch is missing"
        appended = len(found)
    assert appended >= 20


def test_the_killed_controllers_lock_is_free(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), "0"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    with open_sqlite_ledger(path) as ledger:
        refused = pytest.raises(LedgerError, match=rf"\(process {writer.pid}\)")
        with refused as caught, ledger.exclusive("job"):
            pass
        assert caught.value.hint
        writer.kill()
        writer.wait()
        writer.stdout.close()
        with ledger.exclusive("job"):
            pass


def refusal(path: Path, *, create: bool = True) -> LedgerError:
    with pytest.raises(LedgerError) as caught, open_sqlite_ledger(path, create=create) as ledger:
        list(ledger.events())
    assert caught.value.hint
    assert str(path) in caught.value.message
    return caught.value


def test_a_file_that_is_not_a_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes, not a ledger\n" * 100)
    assert refusal(path).code == "SQLITE_NOTADB"
    assert path.read_text() == "my notes, not a ledger\n" * 100


def test_another_programs_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE songs (title)")
    before = path.read_bytes()
    assert refusal(path).code == "foreign_database"
    assert path.read_bytes() == before


def test_a_ledger_of_a_newer_costopt_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    open_sqlite_ledger(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE ledger_version SET version = 99")
        raw.commit()
    assert "version 99" in refusal(path).message


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_sqlite_ledger(path) as ledger:
        for number in range(50):
            ledger.append(*batch(number, room=300))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 8192))
    assert refusal(path).code == "SQLITE_CORRUPT"


def test_a_damaged_event_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_sqlite_ledger(path) as ledger:
        ledger.append(*batch(0))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DROP TRIGGER events_never_change")
        raw.execute("UPDATE events SET body = substr(body, 1, 20) WHERE seq = 3")
        raw.commit()
    refused = refusal(path)
    assert refused.code == "invalid_json"
    assert "event 3: " in refused.message


@pytest.mark.parametrize(
    ("place", "create", "code", "named"),
    [
        ("missing/ledger.db", True, "missing", "/missing "),
        ("ledger.db", False, "missing", "/ledger.db "),
        (".", True, "is_folder", " "),
        ("empty.db", False, "empty", "/empty.db "),
    ],
)
def test_a_place_that_holds_no_ledger(
    tmp_path: Path, place: str, create: bool, code: str, named: str
) -> None:
    (tmp_path / "empty.db").touch()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(LedgerError, match=named, check=has_code(code)) as caught:
        open_sqlite_ledger(tmp_path / place, create=create)
    assert caught.value.hint
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_ledger_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_sqlite_ledger(path) as ledger:
        ledger.append(*batch(0))
        pages = ledger._read("PRAGMA page_count")[0][0]
        ledger._read(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(LedgerError, check=has_code("SQLITE_FULL")) as caught:
            ledger.append(*batch(1, room=100_000))
        assert caught.value.hint
        ledger.append(*batch(1))
    assert batches(path) == [[0] * BATCH, [1] * BATCH]


def test_a_write_that_the_system_refuses_leaves_nothing_half(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_sqlite_ledger(path) as ledger:
        ledger.append(*batch(0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
        try:
            with pytest.raises(LedgerError) as caught:
                ledger.append(*batch(1, room=50_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert caught.value.hint
        ledger.append(*batch(1))
    assert batches(path) == [[0] * BATCH, [1] * BATCH]


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions bind root only once it is somebody else."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_ledger_is_read_but_not_written(open_folder: Path) -> None:
    path = open_folder / "ledger.db"
    with open_sqlite_ledger(path) as writer:
        writer.append(*batch(0))
        for file in open_folder.iterdir():
            file.chmod(0o444)
        open_folder.chmod(0o555)
        with unprivileged(), open_sqlite_ledger(path, create=False) as reader:
            assert len(list(reader.events())) == BATCH
            with pytest.raises(LedgerError, check=has_code("SQLITE_READONLY")) as caught:
                reader.append(*batch(1))
            assert caught.value.hint
        assert len(list(writer.events())) == BATCH


def test_a_folder_without_permission_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with unprivileged():
        assert refusal(open_folder / "ledger.db").code == "SQLITE_CANTOPEN"


def test_a_lock_without_permission_is_refused(open_folder: Path) -> None:
    path = open_folder / "ledger.db"
    with open_sqlite_ledger(path) as ledger:
        open_folder.chmod(0o555)
        with (
            unprivileged(),
            pytest.raises(LedgerError, check=has_code("cannot_lock")),
            ledger.exclusive("job"),
        ):
            pass


def test_a_writer_that_holds_the_file_too_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    monkeypatch.setattr("costopt.database.sqlite.BUSY_TIMEOUT_S", 0.05)
    with open_sqlite_ledger(path) as ledger, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, check=has_code("SQLITE_BUSY")) as caught:
            ledger.append(*batch(0))
        assert caught.value.hint
        other.rollback()
        ledger.append(*batch(0))
    assert batches(path) == [[0] * BATCH]


def test_a_new_ledger_appears_whole(tmp_path: Path) -> None:
    """Who looks while it is made sees no ledger or a whole one, and never an empty file."""
    maker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path\n"
            "from costopt.ledger.sql_ledger import open_sqlite_ledger\n"
            "for n in range(40): open_sqlite_ledger(Path(sys.argv[1]) / f'{n}.sqlite').close()",
            str(tmp_path),
        ]
    )
    try:
        while maker.poll() is None:
            for path in tmp_path.glob("*.sqlite"):
                with open_sqlite_ledger(path, create=False) as ledger:
                    assert ledger.jobs() == ()
    finally:
        maker.kill()
        maker.wait()
    assert maker.returncode == 0
    assert len(list(tmp_path.iterdir())) == 40, "nothing else is left behind"
