"""Pages of the API's lists, and what the client makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.client.client import ApiError, DaemonClient
from costopt.daemon.lists import page_of
from costopt.daemon.shared_state import TickSnapshot
from costopt.domain.errors import SpecError
from costopt.ledger.job_account import JobAccount
from costopt.ledger.job_query import RECENT_JOBS
from costopt.ledger.summary import JobState
from tests.support.daemon_api import Served, served
from tests.support.errors import has_code
from tests.support.market_fixtures import T0

JOBS, OPEN = 70, 10


def name_of(number: int) -> str:
    return f"job{number:03d}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Seventy jobs, of which the seven whose number ends in 9 go on, and one is not yet looked at;
    each was submitted a minute after the one before it."""
    with served(tmp_path_factory.mktemp("lists"), fill=False) as daemon:
        daemon.submit(name_of(0))
        first = daemon.registry.submission(name_of(0))
        assert first is not None
        for number in range(1, JOBS):
            at = first.submitted_at + number * timedelta(minutes=1)
            tenant = "blue" if number % 2 else first.tenant
            own = replace(first, name=name_of(number), submitted_at=at, tenant=tenant)
            daemon.registry.submit(own)
        states = {
            name_of(number): JobState.TRAINING if number % OPEN == 9 else JobState.FINISHED
            for number in range(JOBS - 1)
        }
        summaries = {
            name: replace(JobAccount(name).summary(T0), state=state)
            for name, state in states.items()
        }
        daemon.board.publish(TickSnapshot(T0, summaries=summaries), 0.0)
        yield daemon


def names(client: DaemonClient, **query: object) -> list[str]:
    rows = client.get_all("jobs", rows="jobs", **query)
    return [row["submission"]["name"] for row in rows]


def test_a_list_shows_open_jobs_and_the_latest_that_ended(daemon: Served) -> None:
    shown = names(daemon.local)
    over = [name_of(number) for number in range(JOBS - 1) if number % OPEN != 9]
    going = {name_of(number) for number in range(JOBS) if number % OPEN == 9}
    assert set(shown) == going | set(over[-RECENT_JOBS:])
    assert shown == sorted(shown)


@pytest.mark.parametrize("limit", [1, 7, 69, 70, 1000])
def test_pages_together_hold_every_row_once(daemon: Served, limit: int) -> None:
    every = [name_of(number) for number in range(JOBS)]
    assert names(daemon.local, state="all", limit=limit) == every
    page = daemon.local.get("jobs", state="all", limit=limit)
    assert len(page["jobs"]) == min(limit, JOBS)
    assert page["next"] == (every[limit - 1] if limit < JOBS else None)


def test_a_list_is_of_a_state_a_tenant_a_name_and_a_time(daemon: Served) -> None:
    client = daemon.local
    training = [name_of(number) for number in range(9, JOBS - 1, OPEN)]
    assert names(client, state="training") == training
    assert names(client, state="open") == [*training, name_of(JOBS - 1)]
    assert len(names(client, state="ended")) == JOBS - len(training) - 1
    assert names(client, state="ended", name="06") == [name_of(6), *map(name_of, range(60, 69))]
    assert names(client, state="all", tenant="blue") == [name_of(n) for n in range(1, JOBS, 2)]
    late = client.get("jobs", name_of(65))["submission"]["submitted_at"]
    assert names(client, state="all", since=late) == [name_of(n) for n in range(65, JOBS)]


@pytest.mark.parametrize(
    "query",
    [
        {"state": "dreaming"},
        {"tenant": "not a name"},
        {"since": "yesterday"},
        {"since": "2026-11-28T00:00:00"},
        {"cursor": "nobody"},
        {"limit": 0},
        {"limit": 1001},
    ],
    ids=str,
)
def test_what_no_list_can_be_of_is_refused(daemon: Served, query: dict[str, object]) -> None:
    with pytest.raises(ApiError) as refused:
        daemon.local.get("jobs", **query)
    assert refused.value.status == 422


def test_the_next_page_begins_after_a_row_that_is_no_longer_among_them() -> None:
    every = ["a", "b", "c", "d"]
    first = page_of(every, str, None, 2)
    assert (first.rows, first.next) == (("a", "b"), "b")
    rest = page_of(["c", "d"], str, first.next, 2, order=every)
    assert (rest.rows, rest.next) == (("c", "d"), None)
    with pytest.raises(SpecError, check=has_code("unknown_cursor")):
        page_of(["c", "d"], str, first.next, 2)


def test_other_lists_have_pages_too(tmp_path: Path) -> None:
    with served(tmp_path) as daemon:
        for path, rows in (("decisions", "decisions"), ("proposals", "proposals")):
            every = daemon.local.get(path)
            assert every[rows]
            assert every["next"] is None
            assert daemon.local.get_all(path, rows=rows, limit=1) == every[rows]
