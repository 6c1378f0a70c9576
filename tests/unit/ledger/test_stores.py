"""What every ledger owes its users, and what the SQLite file adds."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event, JobFinished, RunStopped
from costopt.domain.ports import Ledger
from costopt.ledger.base import MemoryLedger, open_ledger
from costopt.ledger.sql_ledger import PAGE_EVENTS, open_sqlite_ledger
from tests.support.errors import has_code
from tests.support.sample_run import sample_events

AT = datetime(2026, 1, 1, tzinfo=UTC)


def stopped(job: str, reason: str = "r") -> Event:
    return RunStopped(at=AT, job=job, reason=reason)


STORED = ["sqlite", pytest.param("postgres", marks=pytest.mark.worker_group("postgres"))]


@pytest.fixture(params=["memory", *STORED])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger()
        return
    with open_ledger(place_of(request, tmp_path)) as opened:
        yield opened


@pytest.fixture(params=STORED)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger can be made that outlives its connections."""
    return place_of(request, tmp_path)


def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "a ledger #1?.db")


def test_events_come_back_in_order_with_their_place(ledger: Ledger) -> None:
    events = sample_events("a")
    ledger.append(*events[:5])
    ledger.append(*events[5:])
    recorded = list(ledger.events())
    assert tuple(r.event for r in recorded) == events
    assert [r.seq for r in recorded] == list(range(1, len(events) + 1))


def test_events_are_read_by_job_and_from_a_place_on(ledger: Ledger) -> None:
    ledger.append(stopped("a"), stopped("b"), stopped("a"), stopped("c"))
    assert [r.seq for r in ledger.events("a")] == [1, 3]
    assert [r.seq for r in ledger.events(after=2)] == [3, 4]
    assert [r.seq for r in ledger.events("a", after=1)] == [3]
    assert list(ledger.events("nobody")) == []


def test_an_empty_append_is_not_an_event(ledger: Ledger) -> None:
    ledger.append()
    assert list(ledger.events()) == []


def test_a_ledger_outlives_its_connection(place: str) -> None:
    with open_ledger(place) as ledger:
        ledger.append(*sample_events())
    with open_ledger(place, create=False) as ledger:
        assert tuple(r.event for r in ledger.events()) == sample_events()


def test_a_page_boundary_loses_nothing(place: str) -> None:
    with open_ledger(place) as ledger:
        ledger.append(*(stopped("a", str(n)) for n in range(2 * PAGE_EVENTS + 1)))
        recorded = list(ledger.events("a"))
        assert [r.seq for r in recorded] == list(range(1, 2 * PAGE_EVENTS + 2))
        assert recorded[-1].event == stopped("a", str(2 * PAGE_EVENTS))


def test_jobs_are_named_in_the_order_of_their_first_event(place: str) -> None:
    with open_ledger(place) as ledger:
        assert ledger.jobs() == ()
        ledger.append(*(stopped(job) for job in ("z", "B", "a", "ü", "z", "b", "a")))
        assert ledger.jobs() == ("z", "B", "a", "ü", "b")


@pytest.mark.worker_group("postgres")
def test_a_name_that_postgresql_cannot_keep_is_refused(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        with pytest.raises(LedgerError) as caught:
            ledger.append(stopped("a"), stopped("\0"))
        assert caught.value.code[:2] == "22", "SQLSTATE: a data exception"
        assert caught.value.hint
        assert list(ledger.events()) == []


def test_a_name_that_is_not_text_is_refused_and_nothing_is_left(place: str) -> None:
    with open_ledger(place) as ledger:
        with pytest.raises(LedgerError, check=has_code("invalid_text")) as caught:
            ledger.append(stopped("a"), stopped("\ud800"))
        assert caught.value.hint
        assert list(ledger.events()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = '{}'",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT * FROM events",
    ],
)
def test_the_file_itself_refuses_change(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "ledger.db"
    with open_sqlite_ledger(path) as ledger:
        ledger.append(stopped("a"))
    with closing(sqlite3.connect(path)) as raw:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute(statement)
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_batch_that_cannot_be_recorded_leaves_nothing(place: str) -> None:
    naive = RunStopped(at=AT.replace(tzinfo=None), job="a", reason="r")
    with open_ledger(place) as ledger:
        with pytest.raises(LedgerError, match="has no zone"):
            ledger.append(stopped("a"), naive)
        assert list(ledger.events()) == []


def test_readers_read_while_a_writer_writes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    writer = sqlite3.connect(path)
    with open_sqlite_ledger(path) as ledger:
        ledger.append(stopped("a"))
        writer.execute("BEGIN IMMEDIATE")
        with open_sqlite_ledger(path, create=False) as reader:
            assert len(list(reader.events())) == 1
    writer.close()


def test_two_threads_share_a_ledger(place: str) -> None:
    with open_ledger(place) as ledger:

        def write() -> None:
            for _ in range(20):
                ledger.append(stopped("a"), stopped("a"))

        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [r.seq for r in ledger.events()] == list(range(1, 81))


def test_one_controller_per_job(place: str) -> None:
    with open_ledger(place) as first, open_ledger(place) as second:
        with first.exclusive("a/../b"):
            with pytest.raises(LedgerError, check=has_code("controlled")):
                second.exclusive("a/../b").__enter__()
            with second.exclusive("another"):
                pass
        with second.exclusive("a/../b"):
            pass


def test_opening_takes_only_the_missing_steps(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for _ in range(2):
        open_sqlite_ledger(path).close()
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM ledger_version").fetchone() == (1,)


def test_closing_twice_is_not_an_error_and_a_closed_ledger_says_so(tmp_path: Path) -> None:
    ledger = open_sqlite_ledger(tmp_path / "ledger.db")
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.append(JobFinished(at=AT + timedelta(1), job="a", units=1.0))
