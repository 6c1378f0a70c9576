"""When the daemon's tasks run: APScheduler, a thread for each, none ever twice at a time.

Tasks that are ``kept`` remember when they are due in the daemon's own database, so that what a
daemon that was down has missed is made up for once, and what is not due yet is not repeated at
every start.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from costopt.daemon.board import Board
from costopt.daemon.settings import Interval
from costopt.domain.errors import CostoptError

KEPT = "kept"
TABLE = "scheduled_tasks"
RESULTS = {
    EVENT_JOB_EXECUTED: "ok",
    EVENT_JOB_ERROR: "failed",
    EVENT_JOB_MISSED: "missed",
    EVENT_JOB_MAX_INSTANCES: "overrun",
}
LEAST_S = 0.02


@dataclass(frozen=True, slots=True)
class Task:
    """Something that is done again and again; ``kept`` as the module says."""

    name: str
    interval: Interval
    run: Callable[[], None]
    kept: bool = False


class TaskSchedule:
    """The tasks, from ``start`` to ``stop``; counts on ``board`` how each run ended.

    ``database`` is where SQLAlchemy finds the daemon's database, None: nothing is kept.
    """

    def __init__(self, tasks: Iterable[Task], board: Board, database: str | None) -> None:
        self._tasks = tuple(tasks)
        self._board = board
        self._keeps = database is not None
        stores = {"default": MemoryJobStore()}
        if database is not None:
            stores[KEPT] = SQLAlchemyJobStore(url=database, tablename=TABLE)
        self._scheduler = BackgroundScheduler(
            jobstores=stores,
            executors={"default": ThreadPoolExecutor(max(1, len(self._tasks)))},
            job_defaults={"coalesce": True, "max_instances": 1},
            timezone=UTC,
            daemon=True,
        )
        # What it would log is counted on the board, and a task's error is told by the task.
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
        self._scheduler.add_listener(self._note, sum(RESULTS))

    def start(self) -> None:
        """Begin; tasks that are not kept, and kept ones that are new, run at once."""
        _RUNNING.update({task.name: task.run for task in self._tasks})
        self._scheduler.start(paused=True)
        for task in self._tasks:
            self._add(task)
        self._scheduler.resume()

    def stop(self) -> None:
        """Let every task that runs finish, and begin no other."""
        self._scheduler.shutdown(wait=True)
        for task in self._tasks:
            _RUNNING.pop(task.name, None)

    def _add(self, task: Task) -> None:
        trigger = IntervalTrigger(
            seconds=max(LEAST_S, task.interval.every_s),
            jitter=task.interval.jitter_s or None,
            timezone=UTC,
        )
        kept = task.kept and self._keeps
        known = self._scheduler.get_job(task.name, KEPT) if kept else None
        if known is not None and known.trigger.interval == trigger.interval:
            return
        self._scheduler.add_job(
            _run,
            trigger,
            args=[task.name],
            id=task.name,
            name=task.name,
            jobstore=KEPT if kept else "default",
            replace_existing=True,
            misfire_grace_time=task.interval.grace_s,
            next_run_time=datetime.now(UTC),
        )

    def _note(self, event: JobEvent) -> None:
        self._board.ran(event.job_id, RESULTS[event.code])


_RUNNING: dict[str, Callable[[], None]] = {}


def _run(name: str) -> None:
    """What the job store remembers of a task is only its name."""
    task = _RUNNING.get(name)
    if task is None:
        return
    try:
        task()
    except CostoptError as error:
        sys.stderr.write(f"costopt daemon: task {name}: {error}\n")
        raise
    except Exception:
        traceback.print_exc()
        raise
