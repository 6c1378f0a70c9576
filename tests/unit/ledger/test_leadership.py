"""Which of many daemons may act on a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.database.connection import Database
from costopt.domain.errors import LeadershipLostError
from costopt.domain.events import RunStopped
from costopt.ledger.base import DurableLedger, open_ledger
from costopt.ledger.leadership import PostgresLeadership
from costopt.ledger.sql_ledger import ADVISORY_LOCK, open_postgres_ledger, open_sqlite_ledger

LEASE_S = 15.0
EVENT = RunStopped(at=datetime(2026, 1, 1, tzinfo=UTC), job="a", reason="r")
ON_POSTGRES = pytest.mark.worker_group("postgres")


@pytest.fixture
def ledgers(database_place: Path | str) -> Iterator[tuple[DurableLedger, DurableLedger]]:
    """One ledger, as two daemons have it open."""
    with open_ledger(database_place) as first, open_ledger(database_place) as second:
        yield first, second


def test_one_leads_and_the_other_stands_by(ledgers: tuple[DurableLedger, DurableLedger]) -> None:
    first, second = (ledger.leadership(n, LEASE_S) for ledger, n in zip(ledgers, "ab", strict=True))
    assert not first.is_leader
    assert first.acquire()
    assert not second.acquire()
    assert first.acquire()
    first.check()
    assert (first.is_leader, second.is_leader) == (True, False)
    with pytest.raises(LeadershipLostError, match="does not lead"):
        second.check()


def test_a_released_leadership_is_taken_at_once_under_a_higher_fence(
    ledgers: tuple[DurableLedger, DurableLedger],
) -> None:
    first, second = (ledger.leadership(n, LEASE_S) for ledger, n in zip(ledgers, "ab", strict=True))
    first.acquire()
    first.release()
    with pytest.raises(LeadershipLostError):
        first.check()
    assert second.acquire()
    assert first.fence is not None
    assert second.fence is not None
    assert second.fence > first.fence
    assert not first.acquire()
    with pytest.raises(LeadershipLostError, match=r"b leads under fence 2, ours was 1") as caught:
        ledgers[0].append(EVENT)
    assert caught.value.hint
    ledgers[1].append(EVENT)
    assert [r.seq for r in ledgers[0].events()] == [1]


def test_a_renewal_never_takes_what_is_free(
    ledgers: tuple[DurableLedger, DurableLedger],
) -> None:
    first, second = (ledger.leadership(n, LEASE_S) for ledger, n in zip(ledgers, "ab", strict=True))
    assert not first.renew()
    assert first.acquire()
    assert first.renew()
    first.release()
    assert not first.renew()
    assert not second.renew()
    second.acquire()
    second.release()
    assert not first.renew()
    with pytest.raises(LeadershipLostError):
        ledgers[0].append(EVENT)
    assert first.acquire()
    assert first.fence == 3


def test_a_ledger_that_never_led_appends_as_ever(
    ledgers: tuple[DurableLedger, DurableLedger],
) -> None:
    ledgers[0].leadership("a", LEASE_S).acquire()
    ledgers[1].append(EVENT)
    ledgers[0].append(EVENT)
    assert len(list(ledgers[0].events())) == 2


def test_a_raised_fence_ends_the_leadership_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with open_sqlite_ledger(path) as ours, open_sqlite_ledger(path) as theirs:
        leadership = ours.leadership("a", LEASE_S)
        assert leadership.acquire()
        theirs.increment_fencing_token("b")
        with pytest.raises(LeadershipLostError):
            ours.append(EVENT)
        assert not leadership.acquire()
        with pytest.raises(LeadershipLostError):
            leadership.check()
        assert leadership.acquire(), "its lock is free again, since it let go of it"


class Steady:
    """A clock that goes where the test says."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def leadership_at(url: str, holder: str, clock: Steady) -> Iterator[PostgresLeadership]:
    database = Database("ledger", url, ADVISORY_LOCK)
    with open_postgres_ledger(url) as ledger:
        yield PostgresLeadership(ledger, database, holder, LEASE_S, clock)
    database.close()


@ON_POSTGRES
class TestLease:
    """The lease on PostgreSQL, with the daemons' steady clocks in the test's hands."""

    @pytest.fixture
    def clock(self) -> Steady:
        return Steady()

    @pytest.fixture
    def pair(
        self, postgres_url: str, clock: Steady
    ) -> Iterator[tuple[PostgresLeadership, PostgresLeadership]]:
        with (
            leadership_at(postgres_url, "a", clock) as first,
            leadership_at(postgres_url, "b", clock) as second,
        ):
            yield first, second

    def test_a_silent_leader_is_followed_after_a_whole_lease(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        leader.acquire()
        assert not other.acquire()
        clock.now_s += LEASE_S - 0.1
        leader.check()
        assert not other.acquire()
        clock.now_s += 0.1
        with pytest.raises(LeadershipLostError):
            leader.check()
        assert other.acquire()
        assert not leader.acquire()
        assert (leader.is_leader, other.is_leader) == (False, True)

    def test_a_standby_that_looked_takes_over_at_its_next_tick(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        leader.acquire()
        assert not other.renew()
        clock.now_s += LEASE_S
        assert not other.renew()
        assert other.acquire()

    def test_a_leader_that_renews_is_never_followed(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        for _ in range(10):
            assert leader.acquire()
            assert not other.acquire()
            clock.now_s += LEASE_S - 0.1

    def test_a_leader_that_wakes_before_another_asks_leads_on(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        leader.acquire()
        clock.now_s += 10 * LEASE_S
        assert not leader.is_leader
        assert leader.acquire()
        assert leader.fence == 1
        assert not other.acquire()

    def test_a_daemon_that_starts_again_need_not_wait_for_itself(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady, postgres_url: str
    ) -> None:
        dead, other = pair
        dead.acquire()
        assert not other.acquire()
        with leadership_at(postgres_url, "a", clock) as second:
            assert second.acquire()
            assert not dead.acquire(), "of two of one name the older one waits as any other does"
            assert second.acquire()
