"""A wall clock that is set is noticed, recorded and delays no task."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from pathlib import Path

import pytest

from costopt.client.client import DaemonClient, parse_address
from costopt.daemon.loop import scheduler
from costopt.daemon.loop.clock_watch import ClockWatch
from costopt.daemon.loop.scheduler import MonotonicTrigger, PeriodicTask, TaskScheduler
from costopt.daemon.settings import TaskInterval
from costopt.daemon.shared_state import SharedState
from costopt.domain.errors import CostoptError
from costopt.domain.events import ClockJumped
from costopt.market.history_file import write_history
from tests.support.daemon_fixtures import DaemonScene
from tests.support.live_run import CALM, PATIENCE_S, T0, UNINTERRUPTIBLE, history, wait_until
from tests.support.node_folder import variables

LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")
HOUR_S = 3600.0


class Clocks:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.real_s = 1000.0
        self.off_s = 5e8

    def wall_s(self) -> float:
        return self.real_s + self.off_s

    def monotonic_s(self) -> float:
        return self.real_s


@pytest.mark.parametrize("jump_s", [-HOUR_S, HOUR_S, 2.0, -2.0, 400 * 86_400.0])
def test_a_clock_that_was_set_is_noticed_once(jump_s: float) -> None:
    clocks = Clocks()
    watch = ClockWatch(clocks.wall_s, clocks.monotonic_s)
    clocks.real_s += 0.5
    assert watch.poll() == 0.0
    clocks.real_s += 0.5
    clocks.off_s += jump_s
    assert watch.poll() == pytest.approx(jump_s)
    clocks.real_s += 0.5
    assert watch.poll() == 0.0


def test_a_clock_that_is_slewed_was_not_set() -> None:
    clocks = Clocks()
    watch = ClockWatch(clocks.wall_s, clocks.monotonic_s)
    for _ in range(1000):
        clocks.real_s += 0.5
        clocks.off_s += 0.4
        assert watch.poll() == 0.0


def test_a_process_that_had_to_wait_between_two_readings_sees_no_jump() -> None:
    clocks = Clocks()
    waits_s: Iterator[float] = chain([0.0, 30.0, 7.0], repeat(0.0))

    def wall_s() -> float:
        clocks.real_s += next(waits_s)
        return clocks.wall_s()

    watch = ClockWatch(wall_s, clocks.monotonic_s)
    assert watch.poll() == 0.0


class Wall(datetime):
    """The scheduler's wall clock, off by so much."""

    off = timedelta(0)

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) + cls.off


def test_a_trigger_counts_by_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "datetime", Wall)
    monkeypatch.setattr(Wall, "off", timedelta(0))
    trigger = MonotonicTrigger(TaskInterval(600.0), 0.0)
    first = trigger.get_next_fire_time(None, datetime.now(UTC))
    again = trigger.get_next_fire_time(first, datetime.now(UTC))
    assert abs((again - first).total_seconds()) < 1.0, "no run is skipped"
    for off in (timedelta(hours=-1), timedelta(days=400)):
        monkeypatch.setattr(Wall, "off", off)
        left_s = (trigger.due_at() - Wall.now()).total_seconds()
        assert 590.0 < left_s <= 600.0


def test_a_task_goes_on_when_the_schedule_is_realigned(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[float] = []
    task = PeriodicTask("task", TaskInterval(0.05), lambda: runs.append(time.monotonic()))
    monkeypatch.setattr(scheduler, "datetime", Wall)
    monkeypatch.setattr(Wall, "off", timedelta(hours=1))
    schedule = TaskScheduler([task], SharedState(T0), None)
    schedule.start()
    try:
        # As for APScheduler: by the true clock, what was due at a clock an hour ahead is not due.
        monkeypatch.setattr(Wall, "off", timedelta(0))
        assert runs == []
        schedule.realign()
        wait_until(lambda: len(runs) >= 5, "runs after the clock was set")
    finally:
        schedule.stop()


def test_a_jump_is_an_alert_and_an_event_of_each_job(tmp_path: Path) -> None:
    scene = DaemonScene(tmp_path)
    try:
        scene.submit("one", "two")
        scene.go(3)
        schedule = scene.daemon.schedule(None)
        schedule.start()
        schedule.stop()
        for jump_s in (-HOUR_S, 90.0):
            scene.daemon.observe_jump(jump_s, scene.daemon.schedule(None))
            scene.go(1)
        for job in ("one", "two"):
            assert [e.seconds for e in scene.events(ClockJumped, job)] == [-HOUR_S, 90.0]
        said = [a.message for a in scene.reader.alerts() if a.kind == "clock"]
        assert ["back" in message for message in said] == [True, False]
    finally:
        scene.close()


@pytest.mark.process
@pytest.mark.slow
def test_a_wall_clock_that_is_set_back_stops_no_tick(tmp_path: Path) -> None:
    libraries = [path for pattern in LIBRARIES for path in Path("/").glob(pattern[1:])]
    if not libraries:
        pytest.skip("libfaketime is not installed (Debian: apt install faketime)")
    write_history(history(CALM | UNINTERRUPTIBLE), tmp_path / "market.parquet")
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    environment = variables(
        LD_PRELOAD=str(libraries[0]),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_NO_CACHE="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
        DONT_FAKE_MONOTONIC="1",
    )
    command = [
        *(sys.executable, "-m", "costopt", "daemon", "--market", "market.parquet", "--speed", "1"),
        *("--tick", "1", "--state-dir", "state", "--listen", "none", "--refresh-prices", "none"),
        *("--log", "json"),
    ]
    with (tmp_path / "log").open("w") as log:
        daemon = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log)
    try:
        for seconds in (-86_400, 86_400):
            ticks = _ticks(tmp_path)
            wait_until(lambda before=ticks: _ticks(tmp_path) > before, "a tick")  # type: ignore[misc]
            clock.write_text(f"{seconds:+d}s\n")
            wait_until(
                lambda way=seconds: f"set {'ahead' if way > 0 else 'back'}" in _log(tmp_path),  # type: ignore[misc]
                "word of the jump",
            )
            ticks = _ticks(tmp_path)
            wait_until(lambda before=ticks: _ticks(tmp_path) >= before + 3, "further ticks")  # type: ignore[misc]
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_S)


def _ticks(folder: Path) -> float:
    """The market's time at the last tick, which is one second after the one before; 0.0 before."""
    try:
        client = DaemonClient(parse_address(f"unix:{folder}/state/daemon.sock"))
        at = client.get("health")["last_tick_at"]
    except CostoptError:
        return 0.0
    return datetime.fromisoformat(at).timestamp() if at else 0.0


def _log(folder: Path) -> str:
    return (folder / "log").read_text()
