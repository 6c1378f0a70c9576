"""Which of many daemons may act on a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.domain.errors import LeadershipLostError
from costopt.domain.events import RunStopped
from costopt.ledger.postgres import PostgresLedger
from costopt.ledger.postgres_leadership import PostgresLeadership
from costopt.ledger.sqlite import open_ledger
from costopt.ledger.stored import StoredLedger, open_stored_ledger

LEASE_S = 15.0
EVENT = RunStopped(at=datetime(2026, 1, 1, tzinfo=UTC), job="a", reason="r")
ON_POSTGRES = pytest.mark.xdist_group("postgres")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=ON_POSTGRES)])
def ledgers(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[StoredLedger, StoredLedger]]:
    """One ledger, as two daemons have it open."""
    place = tmp_path / "ledger.sqlite"
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else place
    with open_stored_ledger(url) as first, open_stored_ledger(url) as second:
        yield first, second


def test_one_leads_and_the_other_stands_by(ledgers: tuple[StoredLedger, StoredLedger]) -> None:
    first, second = (ledger.leadership(n, LEASE_S) for ledger, n in zip(ledgers, "ab", strict=True))
    assert not first.leads
    assert first.take()
    assert not second.take()
    assert first.take()
    first.check()
    assert (first.leads, second.leads) == (True, False)
    with pytest.raises(LeadershipLostError, match="does not lead"):
        second.check()


def test_a_released_leadership_is_taken_at_once_under_a_higher_fence(
    ledgers: tuple[StoredLedger, StoredLedger],
) -> None:
    first, second = (ledger.leadership(n, LEASE_S) for ledger, n in zip(ledgers, "ab", strict=True))
    first.take()
    first.release()
    with pytest.raises(LeadershipLostError):
        first.check()
    assert second.take()
    assert first.fence is not None
    assert second.fence is not None
    assert second.fence > first.fence
    assert not first.take()
    with pytest.raises(LeadershipLostError, match=r"b leads under fence 2, ours was 1") as caught:
        ledgers[0].append(EVENT)
    assert caught.value.hint
    ledgers[1].append(EVENT)
    assert [r.seq for r in ledgers[0].events()] == [1]


def test_a_renewal_never_takes_what_is_free(
    ledgers: tuple[StoredLedger, StoredLedger],
) -> None:
    first, second = (ledger.leadership(n, LEASE_S) for ledger, n in zip(ledgers, "ab", strict=True))
    assert not first.renew()
    assert first.take()
    assert first.renew()
    first.release()
    assert not first.renew()
    assert not second.renew()
    second.take()
    second.release()
    assert not first.renew()
    with pytest.raises(LeadershipLostError):
        ledgers[0].append(EVENT)
    assert first.take()
    assert first.fence == 3


def test_a_ledger_that_never_led_appends_as_ever(
    ledgers: tuple[StoredLedger, StoredLedger],
) -> None:
    ledgers[0].leadership("a", LEASE_S).take()
    ledgers[1].append(EVENT)
    ledgers[0].append(EVENT)
    assert len(list(ledgers[0].events())) == 2


def test_a_raised_fence_ends_the_leadership_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with open_ledger(path) as ours, open_ledger(path) as theirs:
        leadership = ours.leadership("a", LEASE_S)
        assert leadership.take()
        theirs.raise_fence("b")
        with pytest.raises(LeadershipLostError):
            ours.append(EVENT)
        assert not leadership.take()
        with pytest.raises(LeadershipLostError):
            leadership.check()
        assert leadership.take(), "its lock is free again, since it let go of it"


class Steady:
    """A clock that goes where the test says."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


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
        with PostgresLedger(postgres_url) as first, PostgresLedger(postgres_url) as second:
            yield (
                PostgresLeadership(first, "a", LEASE_S, clock),
                PostgresLeadership(second, "b", LEASE_S, clock),
            )

    def test_a_silent_leader_is_followed_after_a_whole_lease(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        leader.take()
        assert not other.take()
        clock.now_s += LEASE_S - 0.1
        leader.check()
        assert not other.take()
        clock.now_s += 0.1
        with pytest.raises(LeadershipLostError):
            leader.check()
        assert other.take()
        assert not leader.take()
        assert (leader.leads, other.leads) == (False, True)

    def test_a_standby_that_looked_takes_over_at_its_next_tick(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        leader.take()
        assert not other.renew()
        clock.now_s += LEASE_S
        assert not other.renew()
        assert other.take()

    def test_a_leader_that_renews_is_never_followed(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        for _ in range(10):
            assert leader.take()
            assert not other.take()
            clock.now_s += LEASE_S - 0.1

    def test_a_leader_that_wakes_before_another_asks_leads_on(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady
    ) -> None:
        leader, other = pair
        leader.take()
        clock.now_s += 10 * LEASE_S
        assert not leader.leads
        assert leader.take()
        assert leader.fence == 1
        assert not other.take()

    def test_a_daemon_that_starts_again_need_not_wait_for_itself(
        self, pair: tuple[PostgresLeadership, PostgresLeadership], clock: Steady, postgres_url: str
    ) -> None:
        dead, other = pair
        dead.take()
        assert not other.take()
        with PostgresLedger(postgres_url) as ledger:
            anew = PostgresLeadership(ledger, "a", LEASE_S, clock)
            assert anew.take()
            assert not dead.take(), "of two of one name the older one waits as any other does"
            assert anew.take()
