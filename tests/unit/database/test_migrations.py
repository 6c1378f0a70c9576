"""Databases of a version that this costopt does not know are refused, and steps are whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest

from costopt.daemon.loop import scheduler
from costopt.database.migrations import Migrations, Transaction, Values
from costopt.domain.errors import LedgerError
from costopt.ledger.base import open_ledger
from costopt.ledger.dialects import POSTGRES_MIGRATIONS, SQLITE_MIGRATIONS
from costopt.registry import registry as registry_module
from costopt.registry.registry import open_registry
from costopt.registry.schema import MIGRATIONS
from tests.support.errors import has_code
from tests.support.postgres_server import PostgresServer

RELEASED: dict[str, tuple[Migrations, list[str]]] = {
    "ledger in SQLite": (SQLITE_MIGRATIONS, ["49f9cdd83a0784e9"]),
    "ledger on PostgreSQL": (POSTGRES_MIGRATIONS, ["d368596331299224"]),
    "registry": (MIGRATIONS, ["92ff24977643121c", "31ad0a2bf5a2bb4e"]),
    "schedule": (scheduler.MIGRATIONS, ["cd2853558ab77615"]),
}


@pytest.mark.parametrize("part", RELEASED)
def test_a_released_step_never_changes(part: str) -> None:
    """A new step's digest is added here; one that fails was changed after its release."""
    migrations, digests = RELEASED[part]
    steps = ["\n".join(" ".join(line.split()) for line in step) for step in migrations.steps]
    assert [sha256(step.encode()).hexdigest()[:16] for step in steps] == digests


@pytest.fixture
def place(database_place: Path | str) -> str:
    """Of a database that does not exist yet, or is empty."""
    return str(database_place)


def open_and_close(part: str, place: str) -> None:
    if part == "ledger":
        open_ledger(place).close()
    else:
        open_registry(place).close()


def execute(statement: str, place: str, request: pytest.FixtureRequest) -> None:
    if "://" in place:
        server: PostgresServer = request.getfixturevalue("postgres")
        server.sql(statement, place.partition("@/")[2].partition("?")[0])
        return
    with closing(sqlite3.connect(place)) as raw, raw:
        raw.execute(statement)


@pytest.mark.parametrize("part", ["ledger", "registry"])
@pytest.mark.parametrize("version", [1, 99])
def test_an_unknown_version_is_refused_and_kept(
    request: pytest.FixtureRequest, place: str, part: str, version: int
) -> None:
    open_and_close(part, place)
    execute(f"UPDATE {part}_version SET version = {version}", place, request)
    for _ in range(2):
        with pytest.raises(
            LedgerError, match=f"version {version}", check=has_code("wrong_version")
        ) as caught:
            open_and_close(part, place)
        assert caught.value.hint
        assert "database.sqlite" in caught.value.message or "postgresql://" in caught.value.message


@pytest.mark.parametrize("part", ["ledger", "registry"])
def test_tables_without_a_version_are_refused(
    request: pytest.FixtureRequest, place: str, part: str
) -> None:
    open_and_close(part, place)
    execute(f"DROP TABLE {part}_version", place, request)
    with pytest.raises(
        LedgerError, match=f"{part}|events|submissions", check=has_code("wrong_version")
    ) as caught:
        open_and_close(part, place)
    assert caught.value.hint


def test_a_later_step_is_taken_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_registry(place).close()
    later = replace(MIGRATIONS, steps=(*MIGRATIONS.steps, ("CREATE TABLE news (id INTEGER)",)))
    with monkeypatch.context() as newer:
        newer.setattr(registry_module, "MIGRATIONS", later)
        for _ in range(2):
            with open_registry(place) as registry:
                assert registry.mode() is None
    with pytest.raises(
        LedgerError, match=f"version {later.latest}", check=has_code("wrong_version")
    ):
        open_registry(place)


def test_a_step_that_fails_leaves_nothing_half(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ("CREATE TABLE news (id INTEGER)", "CREATE TABLE modes (id INTEGER)")
    open_registry(place).close()
    with monkeypatch.context() as later:
        steps = replace(MIGRATIONS, steps=(*MIGRATIONS.steps, broken))
        later.setattr(registry_module, "MIGRATIONS", steps)
        for _ in range(2):
            with pytest.raises(LedgerError, match="modes"):
                open_registry(place)
    with open_registry(place) as registry:
        assert registry.mode() is None


class CommittedBetween:
    """A database where another process's first step appears after the first question."""

    what = "ledger"

    def __init__(self) -> None:
        self._asked = False

    def has_table(self, name: str) -> bool:
        asked, self._asked = self._asked, True
        return asked

    def execute(self, sql: str, values: Values | None = None) -> list[tuple[int]]:
        return [(MIGRATIONS.latest,)]

    def executemany(self, sql: str, rows: Sequence[Values]) -> None:
        raise NotImplementedError

    def reading(self) -> AbstractContextManager[Transaction]:
        return nullcontext(self)

    def writing(self) -> AbstractContextManager[Transaction]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def test_a_first_step_committed_between_two_questions_is_not_another_programs() -> None:
    MIGRATIONS.apply(CommittedBetween())


@pytest.mark.worker_group("postgres")
def test_two_that_migrate_at_once_do_not_disturb_each_other(
    postgres: PostgresServer, postgres_url: str
) -> None:
    failures: list[LedgerError] = []

    def open_both() -> None:
        try:
            open_and_close("ledger", postgres_url)
            open_and_close("registry", postgres_url)
        except LedgerError as error:
            failures.append(error)

    threads = [Thread(target=open_both) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    database = postgres_url.partition("@/")[2].partition("?")[0]
    assert postgres.sql("SELECT count(*) FROM ledger_version", database) == "1"
