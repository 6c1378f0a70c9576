"""Databases of every version that was ever released open, whole, with this costopt."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import text

from costopt.database.steps import Migration, Migrations
from costopt.domain.control import Mode
from costopt.domain.errors import LedgerError
from costopt.domain.events import RunStopped
from costopt.domain.submission import DesiredState, Submission
from costopt.domain.token import Scope
from costopt.ledger import migrations, postgres_migrations
from costopt.ledger.codec import encode
from costopt.ledger.migrations import APPLICATION_ID
from costopt.ledger.postgres import PostgresLedger
from costopt.ledger.snapshot import require_fold, save_folds, summaries
from costopt.ledger.sqlite import open_sqlite_ledger
from costopt.registry import migrations as registry_migrations
from costopt.registry import registry as registry_module
from costopt.registry.registry import open_registry
from tests.support.errors import has_code
from tests.support.postgres_server import PostgresServer

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN_OF_VERSION_1 = f"""
    INSERT INTO tokens (name, scopes, lookup, digest, added_at, added_by)
    VALUES ('old', 'read', 'l', 'd', '{AT.isoformat()}', 'ann')
"""
EVENT = RunStopped(at=AT, job="a", reason="before")

INDEX_STEP = "4d97451f71909233"
RELEASED = {
    "ledger in SQLite": (
        migrations.SQLITE_MIGRATIONS,
        ["d1edcabebbd09785", "ae544ca6a208846c", INDEX_STEP],
    ),
    "ledger on PostgreSQL": (
        postgres_migrations.POSTGRES_MIGRATIONS,
        ["0845eab853b16ce3", INDEX_STEP],
    ),
    "registry": (
        registry_migrations.MIGRATIONS,
        ["3cbb9830eefb197b", "17223e40c07b4a6f", "93e128239eddf3d1"],
    ),
}


def digest(step: Sequence[str]) -> str:
    return sha256(
        "\n".join(" ".join(statement.split()) for statement in step).encode()
    ).hexdigest()[:16]


@pytest.mark.parametrize("part", RELEASED)
def test_a_released_step_never_changes(part: str) -> None:
    """A new step's digest is added here; one that fails was changed after its release."""
    steps, digests = RELEASED[part]
    assert [digest(step) for step in steps] == digests


def sqlite_ledger_of(path: Path, version: int) -> None:
    """A ledger with one event, as the costopt of that version left it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for step in migrations.SQLITE_MIGRATIONS[:version]:
            for statement in step:
                raw.execute(statement)
        raw.execute(
            "INSERT INTO events (job, kind, at, body) VALUES (?, ?, ?, ?)",
            ("a", "RunStopped", AT.isoformat(), encode(EVENT)),
        )
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute(f"PRAGMA user_version = {version}")
        raw.execute("PRAGMA journal_mode = WAL")


@pytest.mark.parametrize("version", range(1, len(migrations.SQLITE_MIGRATIONS) + 1))
def test_a_ledger_file_of_any_version_goes_on(tmp_path: Path, version: int) -> None:
    path = tmp_path / "ledger.sqlite"
    sqlite_ledger_of(path, version)
    with open_sqlite_ledger(path) as ledger:
        assert [r.event for r in ledger.events()] == [EVENT]
        assert ledger.leadership("a daemon", 15.0).acquire()
        ledger.append(EVENT)
        save_folds(ledger)
        assert require_fold(ledger, "a").fresh == 0
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(migrations.SQLITE_MIGRATIONS),)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute("DELETE FROM events")


def test_an_older_ledger_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"
    sqlite_ledger_of(path, 1)
    connect = sqlite3.connect

    def read_only(place: str, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(place, **options)  # type: ignore[call-overload]
        connection.execute("PRAGMA query_only = ON")
        return connection

    monkeypatch.setattr(sqlite3, "connect", read_only)
    with open_sqlite_ledger(path, create=False) as ledger:
        assert [r.event for r in ledger.events()] == [EVENT]
        assert require_fold(ledger, "a").fresh == 1
        assert len(list(summaries(ledger, lambda _, at: at))) == 1
        with pytest.raises(LedgerError, match="read-only"):
            ledger.append(EVENT)


@pytest.mark.xdist_group("postgres")
@pytest.mark.parametrize("version", range(1, len(postgres_migrations.POSTGRES_MIGRATIONS) + 1))
def test_a_ledger_on_postgresql_of_any_version_goes_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as older:
        steps = Migrations("ledger", postgres_migrations.POSTGRES_MIGRATIONS[:version])
        older.setattr("costopt.ledger.postgres.STEPS", steps)
        with PostgresLedger(postgres_url) as ledger:
            ledger.append(EVENT)
    with PostgresLedger(postgres_url) as ledger:
        ledger.append(EVENT)
        assert [r.event for r in ledger.events()] == [EVENT, EVENT]


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a registry that does not exist yet."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "registry.sqlite")


@pytest.mark.parametrize("version", range(1, len(registry_migrations.MIGRATIONS) + 1))
def test_a_registry_of_any_version_goes_on(
    place: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as older:
        steps = Migrations("registry", registry_migrations.MIGRATIONS[:version])
        older.setattr(registry_module, "STEPS", steps)
        with open_registry(place) as registry:
            registry.submit(Submission("a", "t", 0, "job", "policy", "/", AT, "ann"))
            registry.set_mode(Mode.ENFORCE, "ann", AT)
            with registry._database.write_transaction() as connection:
                connection.execute(text(TOKEN_OF_VERSION_1))
    with open_registry(place) as registry:
        assert registry.mode() is Mode.ENFORCE
        registry.tokens.add("new", [Scope.READ], "ann", AT, tenant="blue")
        assert [(t.name, t.tenant) for t in registry.tokens.tokens()] == [
            ("new", "blue"),
            ("old", None),
        ]
        assert (
            registry.set_intent("a", DesiredState.PAUSED, "ann", AT).intent is DesiredState.PAUSED
        )


def test_a_registry_of_a_newer_costopt_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer: tuple[Migration, ...] = (
        *registry_migrations.MIGRATIONS,
        ("CREATE TABLE news (id INTEGER)",),
    )
    with monkeypatch.context() as later:
        later.setattr(registry_module, "STEPS", Migrations("registry", newer))
        open_registry(place).close()
    with pytest.raises(LedgerError, check=has_code("wrong_version")) as caught:
        open_registry(place)
    assert "upgrade costopt" in str(caught.value.hint)


def test_a_step_that_fails_leaves_nothing_half(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ("CREATE TABLE news (id INTEGER)", "CREATE TABLE modes (id INTEGER)")
    open_registry(place).close()
    with monkeypatch.context() as later:
        steps = Migrations("registry", (*registry_migrations.MIGRATIONS, broken))
        later.setattr(registry_module, "STEPS", steps)
        for _ in range(2):
            with pytest.raises(LedgerError, match="modes"):
                open_registry(place)
    with open_registry(place) as registry:
        assert registry.mode() is None


@pytest.mark.xdist_group("postgres")
def test_two_that_migrate_at_once_do_not_disturb_each_other(
    postgres: PostgresServer, postgres_url: str
) -> None:
    failures: list[LedgerError] = []

    def open_both() -> None:
        try:
            PostgresLedger(postgres_url).close()
            open_registry(postgres_url).close()
        except LedgerError as error:
            failures.append(error)

    threads = [Thread(target=open_both) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    database = postgres_url.partition("@/")[2].partition("?")[0]
    steps = str(len(postgres_migrations.POSTGRES_MIGRATIONS))
    assert postgres.sql("SELECT count(*) FROM ledger_version", database) == steps
