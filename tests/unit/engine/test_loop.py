"""Clocks, ticks, and what is written at a tick."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import StoreError
from costopt.domain.events import JobFinished, JobSubmitted, NodeLaunched, RunStopped
from costopt.engine.engine import TickResult
from costopt.engine.journal import Journal
from costopt.engine.loop import ScaledClock, VirtualClock, WallClock, run_until_done
from costopt.ledger.base import MemoryLedger
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, task
from tests.support.market_fixtures import T0, after


def _ticks(scene: Scene) -> list[datetime]:
    times: list[datetime] = []
    run_until_done(scene.engine, lambda result: times.append(result.now))
    return times


@pytest.mark.parametrize("tick_s", [60.0, 195.0, 192.3, 0.7 * 61])
def test_ticks_lie_on_multiples_of_the_tick(tick_s: float) -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(HOUR_S)], tick_s=tick_s)
    times = _ticks(scene)
    assert len(times) > 10
    for number, at in enumerate(times):
        assert abs((at - T0).total_seconds() - number * tick_s) < 1e-3


def test_a_late_tick_is_not_caught_up_with() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(HOUR_S)])
    times: list[float] = []

    def slow(result: TickResult) -> None:
        times.append((result.now - T0).total_seconds())
        if len(times) == 2:
            scene.clock.sleep(150)

    run_until_done(scene.engine, slow)
    assert times[:4] == [0, 60, 240, 300]


def test_two_jobs_run_side_by_side_and_the_loop_ends_with_the_last() -> None:
    jobs = [task(HOUR_S, name="short"), task(3 * HOUR_S, name="long", deadline_s=5 * HOUR_S)]
    scene = Scene(always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0), jobs=jobs)
    result = run_until_done(scene.engine)
    assert result.is_done
    assert result.nodes == ()
    for job in jobs:
        assert scene.summary(job.name).on_time is True
        assert len(scene.events(JobFinished, job.name)) == 1
    spot = [e for job in jobs for e in scene.events(NodeLaunched, job.name) if "spot" in e.pool]
    assert spot


def test_a_job_whose_start_lies_ahead_is_waited_for() -> None:
    later = replace(task(HOUR_S), start_at=after(2 * HOUR_S), deadline_at=after(9 * HOUR_S))
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[later])
    run_until_done(scene.engine)
    (submitted,) = scene.events(JobSubmitted)
    (launched,) = scene.events(NodeLaunched)
    assert submitted.at == launched.launched_at == after(2 * HOUR_S)


def test_a_finished_job_is_not_run_again() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(HOUR_S)])
    run_until_done(scene.engine)
    scene.restart()
    assert scene.tick().is_done
    assert len(scene.events(NodeLaunched)) == 1
    assert len(scene.events(JobSubmitted)) == 1


def test_the_virtual_clock_moves_only_in_sleep() -> None:
    clock = VirtualClock(T0)
    assert clock.now() == clock.now() == T0
    clock.sleep(90.5)
    assert clock.now() == T0 + timedelta(seconds=90.5)
    clock.sleep(-5)
    assert clock.now() == T0 + timedelta(seconds=90.5)


def test_the_scaled_clock_runs_so_many_times_as_fast() -> None:
    before_s = time.monotonic()
    clock = ScaledClock(T0, 10_000.0)
    begun_s = time.monotonic()
    clock.sleep(100.0)
    slept_s = time.monotonic() - begun_s
    market_s = (clock.now() - T0).total_seconds()
    assert slept_s >= 0.01
    assert 10_000 * slept_s <= market_s <= 10_000 * (time.monotonic() - before_s)


def test_the_scaled_clock_goes_on_from_where_it_was() -> None:
    before_s = time.monotonic()
    clock = ScaledClock(T0, 60.0, elapsed_s=120.0)
    market_s = (clock.now() - T0).total_seconds()
    assert 7200 <= market_s <= 7200 + 60 * (time.monotonic() - before_s)


@pytest.mark.parametrize("speed", [0.0, -1.0])
def test_time_does_not_stand_still_or_go_back(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        ScaledClock(T0, speed)


def test_no_clock_sleeps_a_negative_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    monkeypatch.setattr(time, "sleep", slept_s.append)
    WallClock().sleep(-10)
    ScaledClock(T0, 2.0).sleep(-10)
    assert slept_s == [0.0, 0.0]


def test_the_wall_clock_is_aware_utc() -> None:
    before = datetime.now(UTC)
    now = WallClock().now()
    assert now.tzinfo is UTC
    assert before <= now <= datetime.now(UTC)


STOPPED = RunStopped(at=T0, job="job", reason="told to")


def test_what_is_written_together_is_folded_at_once_and_appended_at_the_end() -> None:
    ledger = MemoryLedger()
    journal = Journal(ledger, ["job"])
    with journal.batch():
        journal.write(STOPPED)
        assert journal.accounts["job"].state.value == "stopped"
        assert len(ledger) == 0
    assert len(ledger) == 1
    journal.write(STOPPED)
    assert len(ledger) == 2


@pytest.mark.parametrize("wrong", [StoreError("no answer"), KeyboardInterrupt()])
def test_what_was_seen_before_something_went_wrong_is_kept(wrong: BaseException) -> None:
    ledger = MemoryLedger()
    journal = Journal(ledger, ["job"])

    def see_and_fail() -> None:
        with journal.batch():
            journal.write(STOPPED)
            raise wrong

    with pytest.raises(type(wrong)):
        see_and_fail()
    assert len(ledger) == 1
    journal.write(STOPPED)
    assert len(ledger) == 2
