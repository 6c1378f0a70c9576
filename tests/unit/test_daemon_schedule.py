"""When the daemon's tasks run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from costopt.daemon.board import Board
from costopt.daemon.schedule import KEPT, TABLE, Task, TaskSchedule
from costopt.daemon.settings import Interval
from tests.live_run import PATIENCE_S, wait_until
from tests.market_fixtures import T0


class Counter:
    """A task that counts its runs and can take its time."""

    def __init__(self) -> None:
        self.runs = 0
        self.at_once = 0
        self.most_at_once = 0
        self.may_end = Event()
        self.may_end.set()

    def __call__(self) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.runs += 1
        self.may_end.wait(PATIENCE_S)
        self.at_once -= 1


def test_a_slow_task_delays_no_other_and_never_runs_twice_at_a_time() -> None:
    board, slow, quick = Board(T0), Counter(), Counter()
    slow.may_end.clear()
    tasks = [Task("slow", Interval(0.02), slow), Task("quick", Interval(0.02), quick)]
    schedule = TaskSchedule(tasks, board, None)
    schedule.start()
    wait_until(lambda: quick.runs >= 5, "runs beside the slow one")
    assert slow.runs == 1
    wait_until(lambda: board.task_runs().get(("slow", "overrun"), 0) > 0, "a count of overruns")
    slow.may_end.set()
    schedule.stop()
    assert slow.most_at_once == quick.most_at_once == 1
    assert board.task_runs()["quick", "ok"] >= 5


def test_a_task_that_is_under_way_is_finished_before_the_end() -> None:
    task = Counter()
    task.may_end.clear()
    schedule = TaskSchedule([Task("task", Interval(60), task)], Board(T0), None)
    schedule.start()
    wait_until(lambda: task.at_once == 1, "a run")
    task.may_end.set()
    schedule.stop()
    assert task.at_once == 0


def test_a_task_that_fails_runs_again(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(T0)

    def fail() -> None:
        raise ValueError("wrong")

    schedule = TaskSchedule([Task("task", Interval(0.02), fail)], board, None)
    schedule.start()
    wait_until(lambda: board.task_runs().get(("task", "failed"), 0) >= 2, "two failures")
    schedule.stop()
    assert "ValueError: wrong" in capsys.readouterr().err


def test_what_is_kept_is_not_repeated_by_the_next_daemon(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'registry.sqlite'}"
    kept, other = Counter(), Counter()
    for _ in range(2):
        tasks = [
            Task("kept", Interval(3600), kept, kept=True),
            Task("other", Interval(3600), other),
        ]
        schedule = TaskSchedule(tasks, Board(T0), database)
        runs = other.runs
        schedule.start()
        wait_until(lambda before=runs: other.runs > before and kept.runs > 0, "a run")  # type: ignore[misc]
        schedule.stop()
    assert (kept.runs, other.runs) == (1, 2)


def test_what_a_daemon_missed_while_it_was_down_is_made_up_for_once(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'registry.sqlite'}"
    task = Counter()
    for runs in (1, 2):
        tasks = [Task("kept", Interval(3600), task, kept=True)]
        schedule = TaskSchedule(tasks, Board(T0), database)
        schedule.start()
        wait_until(lambda runs=runs: task.runs == runs, "a run")  # type: ignore[misc]
        schedule.stop()
        set_due(database, "kept", datetime.now(UTC) - timedelta(hours=3.5))
    assert task.runs == 2


def set_due(database: str, name: str, at: datetime) -> None:
    """What is in the database of a daemon that has been down since before then."""
    store = SQLAlchemyJobStore(url=database, tablename=TABLE)
    store.start(BackgroundScheduler(), KEPT)
    job = store.lookup_job(name)
    job._modify(next_run_time=at)
    store.update_job(job)
    store.shutdown()
