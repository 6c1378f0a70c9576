"""A database server that lost what it had committed, as after a failover to a standby behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from costopt.domain.control import DesiredState, Mode, Scope, Submission
from costopt.domain.errors import LeadershipLostError, LedgerError
from costopt.domain.events import RunStopped
from costopt.ledger import appended_events
from costopt.ledger.appended_events import COMMITS_LOST
from costopt.ledger.base import LostEvents, open_ledger
from costopt.ledger.sql_ledger import SqlLedger
from costopt.registry.registry import open_registry
from tests.support.errors import has_code
from tests.support.postgres_server import PostgresServer

AT = datetime(2026, 1, 1, tzinfo=UTC)
Lose = Callable[[int], None]


def stopped(*reasons: str) -> list[RunStopped]:
    return [RunStopped(at=AT, job="a", reason=reason) for reason in reasons]


@pytest.fixture
def lose(database_place: Path | str, request: pytest.FixtureRequest) -> Lose:
    """Loses the events after a number."""
    if isinstance(database_place, Path):

        def lose_rows(after: int) -> None:
            with closing(sqlite3.connect(database_place)) as raw:
                raw.execute("DROP TRIGGER events_never_vanish")
                raw.execute("DELETE FROM events WHERE seq > ?", (after,))
                raw.commit()

        return lose_rows
    server: PostgresServer = request.getfixturevalue("postgres")
    database = database_place.rpartition("/d")[2].partition("?")[0]
    return lambda after: server.lose("events", f"seq > {after}", f"d{database}")


@pytest.fixture
def ledger(database_place: Path | str) -> Iterator[SqlLedger]:
    with open_ledger(database_place) as opened:
        yield cast("SqlLedger", opened)


def read(database_place: Path | str, after: int = 0) -> list[tuple[int, str]]:
    with open_ledger(database_place) as opened:
        return [
            (recorded.seq, recorded.event.reason)
            for recorded in opened.events(after=after)
            if isinstance(recorded.event, RunStopped)
        ]


def test_lost_events_are_written_again_under_their_numbers(
    database_place: Path | str, ledger: SqlLedger, lose: Lose
) -> None:
    ledger.append(*stopped("1", "2", "3"))
    ledger.append(*stopped("4"))
    assert ledger.restore_lost() is None
    lose(2)
    with pytest.raises(LedgerError, check=has_code(COMMITS_LOST)) as caught:
        ledger.append(*stopped("5"))
    assert caught.value.hint
    assert read(database_place) == [(1, "1"), (2, "2")], "nothing was written in their place"
    assert ledger.restore_lost() == LostEvents(3, 4, restored=True)
    assert ledger.restore_lost() is None
    ledger.append(*stopped("5"))
    assert read(database_place) == [(n, str(n)) for n in range(1, 6)]


def test_all_events_may_be_lost(database_place: Path | str, ledger: SqlLedger, lose: Lose) -> None:
    ledger.append(*stopped("1", "2"))
    lose(0)
    assert ledger.restore_lost() == LostEvents(1, 2, restored=True)
    assert read(database_place) == [(1, "1"), (2, "2")]


def test_what_is_not_remembered_stays_lost_and_its_numbers_are_not_used_again(
    database_place: Path | str, ledger: SqlLedger, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appended_events, "MAX_EVENTS", 2)
    with open_ledger(database_place) as short:
        short.append(*stopped("1", "2", "3", "4", "5"))
        lose(2)
        assert short.restore_lost() == LostEvents(3, 5, restored=False)
        assert short.restore_lost() is None, "reported once"
        short.append(*stopped("6"))
        assert read(database_place) == [(1, "1"), (2, "2"), (6, "6")]
        assert read(database_place, after=5) == [(6, "6")], "a reader of 5 misses nothing"


def test_a_daemon_that_read_the_events_sees_their_loss(
    database_place: Path | str, ledger: SqlLedger, lose: Lose
) -> None:
    ledger.append(*stopped("1", "2", "3"))
    with open_ledger(database_place) as other:
        assert len(list(other.events())) == 3
        lose(1)
        assert other.restore_lost() == LostEvents(2, 3, restored=False)
        other.append(*stopped("4"))
    assert read(database_place) == [(1, "1"), (4, "4")]


def test_a_daemon_that_starts_later_sees_the_loss_by_the_number_it_expects(
    database_place: Path | str, ledger: SqlLedger, lose: Lose
) -> None:
    ledger.append(*stopped("1", "2", "3"))
    lose(1)
    with open_ledger(database_place) as other:
        other.observe(3)
        assert other.restore_lost() == LostEvents(2, 3, restored=False)


def test_events_are_not_written_again_over_those_of_another(
    database_place: Path | str, ledger: SqlLedger, lose: Lose
) -> None:
    ledger.append(*stopped("1", "2", "3", "4"))
    lose(1)
    with open_ledger(database_place) as other:
        other.append(*stopped("other"))
    assert ledger.restore_lost() == LostEvents(3, 4, restored=False)
    assert read(database_place) == [(1, "1"), (2, "other")]


@pytest.mark.worker_group("postgres")
def test_a_lost_acquisition_gives_no_token_twice(
    postgres: PostgresServer, postgres_url: str
) -> None:
    database = postgres_url.rpartition("/d")[2].partition("?")[0]
    with open_ledger(postgres_url) as first, open_ledger(postgres_url) as second:
        old = first.leadership("a", 0.5)
        assert old.acquire()
        new = second.leadership("b", 0.5)
        postgres.sql("UPDATE leadership SET holder = ''", f"d{database}")
        assert new.acquire()
        second.append(*stopped("1"))
        lost = "UPDATE leadership SET holder = 'a', fence = fence - 1"
        postgres.sql(lost, f"d{database}")
        with pytest.raises(LeadershipLostError):
            second.append(*stopped("2"))
        before = new.fence
        assert before is not None
        postgres.sql("UPDATE leadership SET holder = 'b'", f"d{database}")
        assert new.acquire(), "its own lease, as it was before"
        assert new.fence is not None
        assert new.fence > before
        # Another one that leads under the same number does not let the old one write.
        postgres.sql("UPDATE leadership SET holder = 'c'", f"d{database}")
        with pytest.raises(LeadershipLostError):
            second.append(*stopped("2"))


@pytest.mark.worker_group("postgres")
def test_lost_operator_actions_are_written_again_under_their_numbers(
    postgres: PostgresServer, postgres_url: str
) -> None:
    database = f"d{postgres_url.rpartition('/d')[2].partition('?')[0]}"
    with open_registry(postgres_url) as registry:
        registry.submit(Submission("one", "t", 0, "job", "policy", "/", AT, "ann"))
        assert registry.restore_lost() is None
        registry.submit(Submission("two", "t", 0, "job", "policy", "/", AT, "ann"))
        registry.set_desired_state("one", DesiredState.CANCELLED, "ann", AT)
        registry.set_priority("two", 7, "ann", AT)
        registry.halt("wait", "ann", AT)
        registry.set_mode(Mode.ENFORCE, "ann", AT)
        token = registry.tokens.add("ci", [Scope.READ], "ann", AT)
        before = registry.changes()
        postgres.sql(
            "DELETE FROM submissions WHERE name = 'two'; DELETE FROM halts; DELETE FROM modes;"
            " DELETE FROM tokens; DELETE FROM changes WHERE number > 1;"
            " UPDATE submissions SET desired_state = 'run'",
            database,
        )
        assert registry.restore_lost() == (2, len(before))
        assert registry.restore_lost() is None
        states = [(s.name, s.desired_state, s.priority) for s in registry.submissions()]
        assert states == [("one", DesiredState.CANCELLED, 0), ("two", DesiredState.RUN, 7)]
        halt = registry.halted()
        assert halt is not None
        assert (halt.reason, registry.mode()) == ("wait", Mode.ENFORCE)
        assert registry.tokens.token_of(token) is not None
        assert registry.changes() == before
        registry.unhalt("ann", AT)
        assert registry.changes()[-1][0] == len(before) + 1
