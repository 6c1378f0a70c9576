"""Events are logged in the order of their time, though some are recorded late."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from costopt.cli.run import _news_lines
from costopt.daemon.watch.notifications import EventLogWriter
from costopt.domain.events import RunStopped, SignalStale, TrainingStarted
from costopt.domain.job import WorkAmount, WorkUnit
from costopt.ledger.base import MemoryLedger
from tests.support.market_fixtures import T0


def late_ledger() -> MemoryLedger:
    ledger = MemoryLedger()
    late = T0 + timedelta(minutes=9)
    ledger.append(
        SignalStale(at=late, job="job", source="s", message="stale"),
        TrainingStarted(at=T0, job="job", generation=1, units=0.0),
        RunStopped(at=late, job="job", reason="stopped"),
    )
    return ledger


def test_a_run_prints_a_ticks_events_by_time() -> None:
    ledger, lines = MemoryLedger(), list[str]()
    work = WorkAmount(100, WorkUnit.STEPS)
    run: Any = SimpleNamespace(ledger=ledger, job=SimpleNamespace(name="job", work=work))
    on_tick = _news_lines(run, lines.append)
    for recorded in late_ledger().events():
        ledger.append(recorded.event)
    on_tick(None)  # type: ignore[arg-type]
    assert len(lines) == 3
    assert lines == sorted(lines, key=lambda line: line[:14])
    on_tick(None)  # type: ignore[arg-type]
    assert len(lines) == 3


def test_a_daemon_logs_events_by_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "costopt.events"):
        EventLogWriter(late_ledger()).follow()
    assert [record.seq for record in caplog.records] == [2, 1, 3]  # type: ignore[attr-defined]
