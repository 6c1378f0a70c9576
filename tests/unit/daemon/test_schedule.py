"""When the daemon's tasks run."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

import costopt
from costopt.daemon.loop.scheduler import DUE_TIMES, PeriodicTask, TaskScheduler, open_due_times
from costopt.daemon.settings import TaskInterval
from costopt.daemon.shared_state import SharedState
from costopt.domain.errors import LedgerError
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.market_fixtures import T0


class Counter:
    """A task that counts its runs and can take its time."""

    def __init__(self) -> None:
        self.runs = 0
        self.running = 0
        self.max_running = 0
        self.may_end = Event()
        self.may_end.set()

    def __call__(self) -> None:
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        self.runs += 1
        self.may_end.wait(PATIENCE_S)
        self.running -= 1


def test_a_slow_task_delays_no_other_and_never_runs_twice_at_a_time() -> None:
    board, slow, quick = SharedState(T0), Counter(), Counter()
    slow.may_end.clear()
    tasks = [
        PeriodicTask("slow", TaskInterval(0.02), slow),
        PeriodicTask("quick", TaskInterval(0.02), quick),
    ]
    schedule = TaskScheduler(tasks, board, None)
    schedule.start()
    wait_until(lambda: quick.runs >= 5, "runs beside the slow one")
    assert slow.runs == 1
    wait_until(lambda: board.task_runs().get(("slow", "overrun"), 0) > 0, "a count of overruns")
    slow.may_end.set()
    schedule.stop()
    assert slow.max_running == quick.max_running == 1
    assert board.task_runs()["quick", "ok"] >= 5


def test_a_task_that_is_under_way_is_finished_before_the_end() -> None:
    task = Counter()
    task.may_end.clear()
    schedule = TaskScheduler([PeriodicTask("task", TaskInterval(60), task)], SharedState(T0), None)
    schedule.start()
    wait_until(lambda: task.running == 1, "a run")
    task.may_end.set()
    schedule.stop()
    assert task.running == 0


def test_a_task_that_fails_runs_again(capsys: pytest.CaptureFixture[str]) -> None:
    board = SharedState(T0)

    def fail() -> None:
        raise ValueError("wrong")

    schedule = TaskScheduler([PeriodicTask("task", TaskInterval(0.02), fail)], board, None)
    schedule.start()
    wait_until(lambda: board.task_runs().get(("task", "failed"), 0) >= 2, "two failures")
    schedule.stop()
    assert "ValueError: wrong" in capsys.readouterr().err


def test_what_is_kept_is_not_repeated_by_the_next_daemon(tmp_path: Path) -> None:
    kept, other = Counter(), Counter()
    for _ in range(2):
        tasks = [
            PeriodicTask("kept", TaskInterval(3600), kept, kept=True),
            PeriodicTask("other", TaskInterval(3600), other),
        ]
        with open_due_times(tmp_path / DUE_TIMES) as due_times:
            schedule = TaskScheduler(tasks, SharedState(T0), due_times)
            runs = other.runs
            schedule.start()
            wait_until(lambda before=runs: other.runs > before and kept.runs > 0, "a run")  # type: ignore[misc]
            schedule.stop()
    assert (kept.runs, other.runs) == (1, 2)


@pytest.mark.parametrize(
    ("due_in_s", "every_s", "grace_s", "begins_in_s"),
    [
        (-3.5 * 3600, 3600, None, (0, 0)),
        (600, 3600, None, (600, 600)),
        (30 * 86_400, 3600, None, (3600, 3600)),
        (-3.5 * 3600, 3600, 60, (1800, 1800)),
        (-30, 3600, 60, (0, 0)),
        (None, 3600, None, (0, 0)),
    ],
    ids=["missed: once", "not due", "a wrong clock", "too late", "within its grace", "new"],
)
def test_when_a_task_begins(
    tmp_path: Path, due_in_s: float | None, every_s: float, grace_s: float | None,
    begins_in_s: tuple[float, float],
) -> None:  # fmt: skip
    task = PeriodicTask("kept", TaskInterval(every_s, grace_s=grace_s), Counter(), kept=True)
    with open_due_times(tmp_path / DUE_TIMES) as due_times:
        if due_in_s is not None:
            due_times.set("kept", datetime.now(UTC) + timedelta(seconds=due_in_s))
        before = datetime.now(UTC)
        delay_s = TaskScheduler([task], SharedState(T0), due_times)._delay_s(task)
        took_s = (datetime.now(UTC) - before).total_seconds()
    earliest_s, latest_s = begins_in_s
    assert earliest_s - took_s - 1 <= delay_s <= latest_s + 1


def test_a_task_that_is_killed_is_not_repeated_before_it_is_due_again(tmp_path: Path) -> None:
    task = Counter()
    task.may_end.clear()
    with open_due_times(tmp_path / DUE_TIMES) as due_times:
        tasks = [PeriodicTask("kept", TaskInterval(3600), task, kept=True)]
        schedule = TaskScheduler(tasks, SharedState(T0), due_times)
        schedule.start()
        wait_until(lambda: task.running == 1, "a run")
        due_at = due_times.get("kept")
        task.may_end.set()
        schedule.stop()
    assert due_at is not None
    assert due_at > datetime.now(UTC) + timedelta(seconds=3000)


@pytest.mark.parametrize("due_at", ["soon", "", b"\x80\x04.", 7])
def test_nothing_but_a_time_is_read_back(tmp_path: Path, due_at: object) -> None:
    """A file that a restore brings may hold anything."""
    with open_due_times(tmp_path / DUE_TIMES) as due_times:
        due_times.set("kept", datetime.now(UTC))
        with sqlite3.connect(tmp_path / DUE_TIMES) as raw:
            raw.execute("UPDATE due_times SET due_at = ?", (due_at,))
        raw.close()
        assert due_times.get("kept") is None


UNPICKLING = re.compile(r"\bpickle\.(load|loads|Unpickler)\b|pickle import .*loads?\b|JobStore")


def test_only_torchs_checkpoints_and_a_backtests_own_work_are_unpickled() -> None:
    package = Path(costopt.__path__[0])
    pickling = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if UNPICKLING.search(path.read_text("utf-8"))
    }
    assert pickling == {"train", "backtesting"}


def test_a_due_time_that_cannot_be_stored_stops_no_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Counter()
    with open_due_times(tmp_path / DUE_TIMES) as due_times:
        with sqlite3.connect(tmp_path / DUE_TIMES) as raw:
            raw.execute(
                "CREATE TRIGGER t BEFORE INSERT ON due_times BEGIN SELECT RAISE(ABORT, 'full'); END"
            )
        raw.close()
        schedule = TaskScheduler(
            [PeriodicTask("kept", TaskInterval(0.02), task, kept=True)], SharedState(T0), due_times
        )
        schedule.start()
        wait_until(lambda: task.runs >= 2, "two runs")
        schedule.stop()
    assert "full" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / DUE_TIMES).write_text("no database" * 100)
    with pytest.raises(LedgerError) as caught, open_due_times(tmp_path / DUE_TIMES):
        pass
    assert DUE_TIMES in str(caught.value.hint)
