"""Every ledger finds events of a kind alike, and decodes no others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.domain.events import DecisionMade, Event, ProgressReported, SignalStale
from costopt.domain.ports import EventIndex
from costopt.ledger import codec, sql_ledger
from costopt.ledger.base import MemoryLedger, open_ledger
from tests.support.market_fixtures import T0

Opened = Callable[[], EventIndex]
EVENTS = 700


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventIndex]:
    with ExitStack() as held:
        if request.param == "memory":
            yield MemoryLedger()
            return
        place = (
            tmp_path / "ledger.sqlite"
            if request.param == "sqlite"
            else request.getfixturevalue("postgres_url")
        )
        yield held.enter_context(open_ledger(place))


def decision(job: str, number: int) -> DecisionMade:
    at = T0 + timedelta(seconds=number)
    return DecisionMade(
        at=at, job=job, decision_id=f"{job}-d{number}", targets=(), reason="wait", slack_s=None,
        alternatives=(),
    )  # fmt: skip


def test_all_ledgers_find_what_a_scan_finds(ledger: EventIndex) -> None:
    chances = random.Random(0)
    made: list[Event] = []
    for number in range(EVENTS):
        job = chances.choice(["a", "b", "c-d1"])
        stale = SignalStale(at=T0, job=job, source="s", message="m")
        made.append(decision(job, number) if chances.random() < 0.6 else stale)
    ledger.append(*made)
    scanned = [(r.seq, r.event) for r in ledger.events() if isinstance(r.event, DecisionMade)]
    newest_first = scanned[::-1]
    for job in ("a", "b", "c-d1", "none"):
        assert list(ledger.newest(DecisionMade, job)) == [
            (seq, event) for seq, event in newest_first if event.job == job
        ]
    last = {event.job: (seq, event) for seq, event in scanned}
    assert list(ledger.last_of_each(DecisionMade)) == sorted(last.values(), reverse=True)
    assert list(ledger.newest(ProgressReported, "a")) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_only_what_is_looked_at_is_decoded(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = tmp_path / "l" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with open_ledger(place) as ledger:
        stale = SignalStale(at=T0, job="a", source="s", message="m")
        ledger.append(*[stale] * 500, *(decision("a", n) for n in range(300)), *[stale] * 500)
        decoded: list[str] = []

        def counting(body: str) -> Event:
            decoded.append(body)
            return codec.decode(body)

        monkeypatch.setattr(sql_ledger, "decode", counting)
        assert next(ledger.newest(DecisionMade, "a"))[1].decision_id == "a-d299"
        assert len(decoded) == 1
        assert len(list(ledger.newest(DecisionMade, "a"))) == 300
        assert len(decoded) == 301


def test_the_index_is_used(tmp_path: Path) -> None:
    with sql_ledger.open_sqlite_ledger(tmp_path / "l") as ledger:
        for query in (sql_ledger.NEWEST, sql_ledger.LAST_OF_EACH):
            values = {"kind": "x", "job": "a", "before": 9, "most": 1}
            plan = " ".join(row[3] for row in ledger._read(f"EXPLAIN QUERY PLAN {query}", values))
            assert "events_by_kind" in plan
            assert "SCAN events " not in f"{plan} "
