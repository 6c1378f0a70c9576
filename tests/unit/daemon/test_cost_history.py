"""What jobs cost per day, from the ledger: it adds up, and nothing is read twice without cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costopt.daemon.shared_state import JobStatus
from costopt.daemon.watch import cost_history
from costopt.daemon.watch.cost_history import CostReader, JobCosts, costs_of
from costopt.domain.control import Submission
from costopt.domain.errors import LedgerError
from costopt.domain.events import Event, NodeLaunched
from costopt.domain.ports import RecordedEvent
from costopt.ledger.base import MemoryLedger
from costopt.ledger.job_account import JobAccount
from tests.support.sample_run import START_AT, sample_events

JOB = "overnight"
LATER = timedelta(hours=13)
"""The run then lasts from 21:00 to 02:31 on the next day."""
ENDED_AT = START_AT + LATER + timedelta(hours=7)


def overnight(job: str = JOB) -> list[Event]:
    return [_shifted(event) for event in sample_events(job)]


def _shifted(event: Event) -> Event:
    values: dict[str, Any] = {each.name: getattr(event, each.name) for each in fields(event)}
    times = {name: v + LATER for name, v in values.items() if isinstance(v, datetime)}
    return type(event)(**(values | times))


def account_of(events: list[Event], job: str = JOB) -> JobAccount:
    account = JobAccount(job)
    for event in events:
        account.apply(event)
    return account


def status_of(events: list[Event], now: datetime) -> JobStatus:
    summary = account_of(events, events[0].job).summary(now)
    submitted = Submission(summary.job, "default", 0, "", "", "/srv", START_AT, "test")
    return JobStatus(submitted, summary, "", None, None, ())


class CountingLedger(MemoryLedger):
    """Counts the events that were read, and raises after ``left`` more of them."""

    read = 0
    left = 10**9

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        for recorded in super().events(job, after):
            if self.left == 0:
                raise LedgerError("the ledger cannot be read", hint="test")
            self.left -= 1
            self.read += 1
            yield recorded


def test_the_days_add_up_to_the_summary() -> None:
    account = account_of(overnight())
    costs = costs_of(account, ENDED_AT)
    summary = account.summary(ENDED_AT)
    assert [day.isoformat() for day in costs.days] == ["2026-03-02", "2026-03-03"]
    assert sum(cost.usd_micros for cost in costs.days.values()) == summary.usd_micros
    known = [cost.wh for cost in costs.days.values() if cost.wh is not None]
    assert sum(known) == pytest.approx(summary.wh)
    midnight = datetime(2026, 3, 3, tzinfo=START_AT.tzinfo)
    first = account.usd_micros_between(START_AT, midnight)
    assert costs.days[START_AT.date()].usd_micros == pytest.approx(first, abs=10)


def test_spans_are_those_with_nodes() -> None:
    account = account_of(overnight())
    costs = costs_of(account, ENDED_AT)
    rows = account.intervals(ENDED_AT)
    assert costs.spans[0][0] == min(row.launched_at for row in rows)
    assert costs.spans[-1][1] == max(row.ended_at or ENDED_AT for row in rows)
    for (_, end), (start, _) in zip(costs.spans, costs.spans[1:], strict=False):
        assert end < start
    assert costs_of(JobAccount("none"), ENDED_AT) == JobCosts({}, ())


def test_energy_of_a_day_with_a_node_of_unknown_power_is_unknown() -> None:
    events = [
        replace(e, idle_w=None, busy_w=None, pue=None)
        if isinstance(e, NodeLaunched) and e.at >= datetime(2026, 3, 3, tzinfo=START_AT.tzinfo)
        else e
        for e in overnight()
    ]
    first, second = costs_of(account_of(events), ENDED_AT).days.values()
    assert first.wh is not None
    assert second.wh is None
    assert second.usd_micros > 0


def test_an_open_job_is_read_on_from_where_it_was() -> None:
    events, ledger = overnight(), CountingLedger()
    reader = CostReader(ledger)
    for count in (15, 25, len(events) - 2):
        ledger.append(*events[len(ledger) : count])
        now = events[count - 1].at
        read = reader.read([status_of(events[:count], now)], START_AT).jobs[JOB]
        assert read == costs_of(account_of(events[:count]), now)
        assert ledger.read == count


def test_an_ended_job_is_read_again_only_when_its_figures_change() -> None:
    events, ledger = overnight(), CountingLedger()
    ledger.append(*events)
    reader, ended = CostReader(ledger), status_of(events, ENDED_AT)
    first = reader.read([ended], START_AT)
    later = replace(ended, summary=replace(ended.summary, now=ENDED_AT + timedelta(days=1)))
    assert reader.read([later], START_AT) == first
    assert ledger.read == len(events)
    billed = replace(later.summary, usd_micros=later.summary.usd_micros + 1)
    reader.read([replace(later, summary=billed)], START_AT)
    assert ledger.read == 2 * len(events)
    assert reader.read([ended], ENDED_AT + timedelta(days=1)).jobs == {}


def test_a_failed_read_leaves_nothing_half_counted() -> None:
    events, ledger = overnight(), CountingLedger()
    ledger.append(*events[:15])
    reader = CostReader(ledger)
    reader.read([status_of(events[:15], events[14].at)], START_AT)
    ledger.append(*events[15:25])
    status = status_of(events[:25], events[24].at)
    ledger.left = 5
    with pytest.raises(LedgerError):
        reader.read([status], START_AT)
    ledger.left = 100
    again = reader.read([status], START_AT).jobs[JOB]
    assert again == costs_of(account_of(events[:25]), events[24].at)


def test_jobs_that_there_was_no_time_to_read_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, events = MemoryLedger(), {name: overnight(name) for name in ("a", "b")}
    statuses = [status_of(each, ENDED_AT) for each in events.values()]
    for each in events.values():
        ledger.append(*each)
    reader = CostReader(ledger)
    assert set(reader.read(statuses[:1], START_AT).jobs) == {"a"}
    monkeypatch.setattr(cost_history, "READ_TIMEOUT_S", 0.0)
    late = reader.read(statuses, START_AT)
    assert (set(late.jobs), late.unread) == ({"a"}, 1)
