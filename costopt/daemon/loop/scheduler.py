"""The daemon's periodic tasks: APScheduler, one thread per task, no task twice at a time.

Intervals are counted by the monotonic clock, so a wall clock that is set delays no task.

The due time of a ``kept`` task is stored before it runs, so that a run missed while the daemon was
down is made up for once, and a task that is not yet due is not repeated at every start. The due
times are two columns of a SQLite file. Only a name and a time are read from it, so a restored file
cannot execute code.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from sqlalchemy import text

from costopt.daemon.settings import TaskInterval
from costopt.daemon.shared_state import SharedState
from costopt.database.connection import Database
from costopt.database.migrations import Migrations
from costopt.domain.errors import CostoptError, LedgerError
from costopt.ledger.leadership import monotonic_s

RESULTS = {
    EVENT_JOB_EXECUTED: "ok",
    EVENT_JOB_ERROR: "failed",
    EVENT_JOB_MISSED: "missed",
    EVENT_JOB_MAX_INSTANCES: "overrun",
}
MIN_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task that runs periodically; ``kept`` as the module's docstring says."""

    name: str
    interval: TaskInterval
    run: Callable[[], None]
    kept: bool = False


class MonotonicTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires once per interval of the monotonic clock, first after ``delay_s``.

    APScheduler wants a time of the wall clock: ``due_at`` is that of ``due_s`` by the clock as it
    is now, and no longer true once the clock is set.
    """

    def __init__(self, interval: TaskInterval, delay_s: float) -> None:
        self._every_s = _every_s(interval)
        self._jitter_s = interval.jitter_s
        self.due_s = monotonic_s() + delay_s

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:  # noqa: ARG002
        """Return when the task is due next; a run that is due counts as begun, missed ones too."""
        late_s = monotonic_s() - self.due_s
        if late_s >= 0:
            self.due_s += (late_s // self._every_s + 1) * self._every_s
            self.due_s += random.uniform(0.0, self._jitter_s)  # noqa: S311
        return self.due_at()

    def due_at(self) -> datetime:
        """Return the next run by the present wall clock."""
        return datetime.now(UTC) + timedelta(seconds=self.due_s - monotonic_s())


class TaskScheduler:
    """Runs the tasks from ``start`` to ``stop``, and counts on ``board`` how each run ended.

    With ``due_times`` None no due times are stored.
    """

    def __init__(
        self, tasks: Iterable[PeriodicTask], board: SharedState, due_times: DueTimes | None
    ) -> None:
        self._tasks = tuple(tasks)
        self._board = board
        self._due_times = due_times
        self._triggers: dict[str, MonotonicTrigger] = {}
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(max(1, len(self._tasks)))},
            job_defaults={"coalesce": True, "max_instances": 1},
            timezone=UTC,
            daemon=True,
        )
        # Missed runs are counted on the board, and each task reports its own errors.
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
        self._scheduler.add_listener(self._note, sum(RESULTS))

    def start(self) -> None:
        """Start; tasks that are not kept, and kept ones that are new, run at once.

        Raise LedgerError if the due times cannot be read.
        """
        delays_s = [self._delay_s(task) for task in self._tasks]
        self._triggers = {
            task.name: MonotonicTrigger(task.interval, delay_s)
            for task, delay_s in zip(self._tasks, delays_s, strict=True)
        }
        self._scheduler.start(paused=True)
        for task in self._tasks:
            self._add(task)
        self._scheduler.resume()

    def hasten(self, name: str) -> None:
        """Let a task run now; its interval counts from then on."""
        self._triggers[name].due_s = monotonic_s()
        self._realign(name)

    def realign(self) -> None:
        """Set the due times by the wall clock again, which has been set."""
        for name in self._triggers:
            self._realign(name)

    def _realign(self, name: str) -> None:
        self._scheduler.modify_job(name, next_run_time=self._triggers[name].due_at())

    def stop(self) -> None:
        """Wait for the running tasks, and start no other."""
        self._scheduler.shutdown(wait=True)

    def _delay_s(self, task: PeriodicTask) -> float:
        """Return the seconds until the first run: 0, or until a kept task is due, but at most one
        interval, whatever the clock was when that was stored."""
        due_at = self._due_times.get(task.name) if task.kept and self._due_times else None
        if due_at is None:
            return 0.0
        every_s, grace_s = _every_s(task.interval), task.interval.grace_s
        late_s = (datetime.now(UTC) - due_at).total_seconds()
        if grace_s is not None and late_s > grace_s:
            return math.ceil(late_s / every_s) * every_s - late_s
        return max(0.0, min(-late_s, every_s))

    def _add(self, task: PeriodicTask) -> None:
        trigger = self._triggers[task.name]
        self._scheduler.add_job(
            self._run,
            trigger,
            args=[task],
            id=task.name,
            name=task.name,
            # The executor would compare with the wall clock.
            misfire_grace_time=None,
            next_run_time=trigger.due_at(),
        )

    def _run(self, task: PeriodicTask) -> None:
        try:
            self._store_due_time(task)
            task.run()
        except CostoptError as error:
            sys.stderr.write(f"costopt daemon: task {task.name}: {error}\n")
            raise
        except Exception:
            traceback.print_exc()
            raise

    def _store_due_time(self, task: PeriodicTask) -> None:
        """Store when the task is due. If that fails, the task runs all the same, and again at the
        next start."""
        if not task.kept or self._due_times is None:
            return
        try:
            due_at = datetime.now(UTC) + timedelta(seconds=_every_s(task.interval))
            self._due_times.set(task.name, due_at)
        except LedgerError as error:
            sys.stderr.write(f"costopt daemon: task {task.name}: {error}\n")

    def _note(self, event: JobEvent) -> None:
        self._board.record_task_run(event.job_id, RESULTS[event.code])


def _every_s(interval: TaskInterval) -> float:
    return max(MIN_INTERVAL_S, interval.every_s)


DUE_TIMES = "schedule.sqlite"
MIGRATIONS = Migrations(
    "schedule",
    "due_times",
    (("CREATE TABLE due_times (name TEXT PRIMARY KEY, due_at TEXT NOT NULL)",),),
)
_GET = text("SELECT due_at FROM due_times WHERE name = :name")
_SET = text(
    "INSERT INTO due_times (name, due_at) VALUES (:name, :due_at)"
    " ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at"
)


class DueTimes:
    """Stored due times; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> datetime | None:
        """Return when the task is due; None if unknown. Raise LedgerError."""
        with self._database.read_transaction() as connection:
            due_at = connection.scalar(_GET, {"name": name})
        try:
            return None if due_at is None else datetime.fromisoformat(due_at).astimezone(UTC)
        except (TypeError, ValueError):
            return None

    def set(self, name: str, due_at: datetime) -> None:
        """Store when the task is due. Raise LedgerError."""
        with self._database.write_transaction() as connection:
            connection.execute(_SET, {"name": name, "due_at": due_at.isoformat()})


@contextmanager
def open_due_times(path: Path) -> Iterator[DueTimes]:
    """Return the due times in a file, created if missing. Raise LedgerError."""
    database = Database("schedule", path, lock=0)
    try:
        try:
            MIGRATIONS.apply(database)
        except LedgerError as error:
            hint = f"remove {path}: tasks then run once more than they need to"
            raise LedgerError(error.message, hint=hint) from error
        yield DueTimes(database)
    finally:
        database.close()
