"""The tasks of an array on one node: taken from the board, run side by side, and ended there.

A node takes tasks that no other runs, and those of nodes that left or sent no heartbeat for a
while. That may be an error: then two nodes run a task, and the result that is put first counts.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from costopt.agent.launch_spec import task_spec
from costopt.agent.preparation import NODE_ITSELF, TrainerPlace
from costopt.agent.settings import AgentSettings
from costopt.agent.trainer import Trainer
from costopt.checkpoint.identity import JOB
from costopt.protocol import trainer_files
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, NodeActivity
from costopt.protocol.tasks import (
    MAX_LOG_BYTES,
    MAX_RESULT_BYTES,
    ArrayTasks,
    TaskBoard,
    TaskClaim,
    TaskFailure,
    TaskResult,
    TaskState,
)
from costopt.protocol.trainer_files import StopNotice, TrainerState, TrainerStatus

LOG_INTERVAL_S = 5.0
"""Between two uploads of a running task's log, where it has grown."""
TIMES_KEPT = 16
TIMED_OUT = 124
"""The exit code that timeout(1) gives a command that ran too long."""
MAX_PART = 0.95
"""Of a task that takes longer than expected."""


@dataclass(slots=True)
class RunningTask:
    """An attempt of a task on this node; ``began_s`` is when it began, by the monotonic clock."""

    task: int
    attempt: int
    slot: int
    claim: TaskClaim
    folder: Path
    trainer: Trainer
    logged_bytes: int = 0
    logged_at: float = 0.0
    began_s: float = field(default_factory=time.monotonic)

    @property
    def ran_s(self) -> float:
        """Return for how many seconds it has run, however the wall clock was set meanwhile."""
        return time.monotonic() - self.began_s


class TaskRunner:
    """What the agent does for an array; it stands in the place of an ``Attempt``.

    Methods raise StoreError if the store does not answer; the next call does what remained undone.
    """

    def __init__(self, gang: Gang, settings: AgentSettings, mailbox: Mailbox) -> None:
        self.gang = gang
        self.settings = settings
        self.started = False
        self.exit_code: int | None = None
        self.restarts = 0
        self.upload_bytes_per_s: float | None = None
        self.resumed_units: float | None = None
        self.data_dir: Path | None = None
        self.cache_dir: Path | None = None
        self.message = ""
        self._place = NODE_ITSELF
        self._mailbox = mailbox
        self._board = TaskBoard(mailbox.store, gang.job)
        self._array: ArrayTasks | None = None
        self._running: dict[int, RunningTask] = {}
        self._leaving = False
        self._ready = False
        self._problem = ""
        self._look_at = 0.0
        self._done = 0
        self._took_s: deque[float] = deque(maxlen=TIMES_KEPT)
        self._beats: dict[str, tuple[int | None, float]] = {}

    @property
    def trainer(self) -> Trainer | None:
        """Return a task's running command, None if there is none."""
        return next((run.trainer for run in self._running.values()), None)

    @property
    def log_path(self) -> str:
        """Return a running task's log file, "" if no task runs."""
        return "" if self.trainer is None else str(self.trainer.log_path)

    @property
    def activity(self) -> NodeActivity:
        """Return what the node does."""
        if self._leaving:
            return NodeActivity.STOPPING if self._running else NodeActivity.STOPPED
        if self._running:
            return NodeActivity.TRAINING
        return NodeActivity.IDLE if self._ready else NodeActivity.STARTING

    @property
    def status(self) -> TrainerStatus:
        """Return the tasks that this node has done, and its speed if it has done any.

        A part of a task that runs counts as done, but not as saved.
        """
        mean_s = sum(self._took_s) / len(self._took_s) if self._took_s else 0.0
        now, saved, task_s = time.time(), float(self._done), self.gang.task_s or math.inf
        running_s = (run.ran_s for run in self._running.values())
        parts = sum(min(max(0.0, ran_s / task_s), MAX_PART) for ran_s in running_s)
        return TrainerStatus(
            self.gang.generation,
            TrainerState.TRAINING,
            now,
            done_units=saved + parts,
            saved_units=saved,
            units_per_s=self._slots / mean_s if mean_s > 0 else None,
        )

    def adopt(self, gang: Gang) -> None:
        """Follow a newer gang: only its members take tasks; what runs goes on."""
        if gang.generation > self.gang.generation and self.settings.node_id in gang.members:
            self._leaving = False
        self.gang = gang

    def wait(self, message: str) -> None:
        """Report what the next task waits for."""
        self.message, self._ready, self._problem = message, False, ""

    def fail(self, message: str) -> None:
        """Fail the tasks that this node takes next: what they need is unavailable."""
        self._problem, self._ready = message, True

    def start(
        self,
        data_dir: Path | None,
        cache_dir: Path | None = None,
        place: TrainerPlace = NODE_ITSELF,
    ) -> None:
        """Take tasks from now on, to run in ``place``; the job's data are in ``data_dir``, its
        cache's names in ``cache_dir``."""
        self.data_dir, self.cache_dir, self._place = data_dir, cache_dir, place
        self._ready, self.message, self._problem = True, "", ""

    def ask_stop(self, notice: StopNotice) -> None:
        """Take no more tasks. Those that run go on while the node does."""
        self._leaving = True
        self.message = notice.reason

    def watch(self) -> None:
        """End the tasks whose command ended or took too long, and take others."""
        limit_s = self.gang.task_timeout_s or math.inf
        for run in tuple(self._running.values()):
            code = run.trainer.exit_code()
            if code is not None:
                self._end(run, code)
            elif run.ran_s > limit_s:
                run.trainer.kill()
                self._fail(run, TIMED_OUT, "ran longer than array.timeout allows")
            else:
                self._upload_log(run)
        member = self.gang.rank(self.settings.node_id) is not None
        if member and self._ready and not self._leaving:
            self._take()

    def kill(self) -> None:
        """Send SIGKILL to every process that the tasks started."""
        for run in self._running.values():
            run.trainer.kill()

    @property
    def _slots(self) -> int:
        rank = self.gang.rank(self.settings.node_id)
        return self.gang.task_slots[rank] if rank is not None else len(self._running)

    def _take(self) -> None:
        if len(self._running) >= self._slots or time.monotonic() < self._look_at:
            return
        self._array = array = self._array or self._board.array()
        if array is None:
            return
        for task, state in self._open_tasks(self._board.states(), array.tasks):
            claim = TaskClaim(self.settings.node_id, self.gang.generation, time.time())
            if self._board.claim(task, state.attempts + 1, claim):
                self._start(task, state.attempts + 1, claim, array)
                if len(self._running) >= self._slots:
                    return
        self._look_at = time.monotonic() + self.settings.heartbeat_s

    def _open_tasks(
        self, states: Mapping[int, TaskState], tasks: int
    ) -> Iterator[tuple[int, TaskState]]:
        """Yield what may be taken: first what no node runs, each node from another place on."""
        known = [(task, states.get(task, TaskState())) for task in range(tasks)]
        open_ = [(n, state) for n, state in known if state.is_open(self.gang.task_retries)]
        free = [each for each in open_ if not each[1].is_claimed]
        if free:
            rank = self.gang.rank(self.settings.node_id) or 0
            begin = rank * self._slots % len(free)
            yield from (*free[begin:], *free[:begin])
        for task, state in open_:
            if state.is_claimed and self._is_lost(task, state.attempts):
                yield task, state

    def _is_lost(self, task: int, attempt: int) -> bool:
        """Whether the attempt's node is gone or silent, or is this one and does not run it.

        A node that has left the gang without being asked to is gone, or is about to be.
        """
        claim = self._board.claimed(task, attempt)
        if claim is None or claim.node_id == self.settings.node_id:
            run = self._running.get(task)
            return run is None or run.attempt != attempt
        leaves = self.gang.rank(claim.node_id) is None
        if leaves and not self._mailbox.is_drain_requested(claim.node_id):
            return True
        beat = self._mailbox.heartbeat(claim.node_id)
        if beat is not None and beat.state in (NodeActivity.STOPPED, NodeActivity.GONE):
            return True
        number, now = None if beat is None else beat.beat, time.monotonic()
        last, changed_at = self._beats.get(claim.node_id, (None, now))
        if last != number:
            changed_at = now
        self._beats[claim.node_id] = number, changed_at
        return now - changed_at > self.settings.peer_silent_s

    def _start(self, task: int, attempt: int, claim: TaskClaim, array: ArrayTasks) -> None:
        if self._problem:
            self._refuse(task, attempt, claim, self._problem)
            return
        folder = self.settings.folder / f"task-{task:06d}-{attempt:04d}"
        used = {run.slot for run in self._running.values()}
        slot = next(n for n in range(len(used) + 1) if n not in used)
        variables = {
            JOB: self.gang.job,
            trainer_files.NODE: claim.node_id,
            trainer_files.TASK: str(task),
            trainer_files.TASK_ATTEMPT: str(attempt),
            trainer_files.TASKS: str(array.tasks),
            trainer_files.RESULT_FILE: str(folder / "result.json"),
        }
        if self.gang.identity is not None:
            variables |= self.gang.identity.variables()
        if self.data_dir is not None:
            variables[trainer_files.DATA_DIR] = str(self.data_dir)
        if self.cache_dir is not None:
            variables[trainer_files.CACHE_DIR] = str(self.cache_dir)
        if self._slots > 1:
            gpus = range(slot * self.gang.task_gpus, (slot + 1) * self.gang.task_gpus)
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        workdir = self.settings.place(self.gang.workdir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            trainer = Trainer(
                [
                    task_spec(
                        self.gang,
                        array.parameters(task),
                        self._place.interpreter(self.gang.command),
                    )
                ],
                {**variables, **self._place.variables},
                workdir=workdir,
                status_file=folder / "status.json",
                notice_file=folder / "notice.json",
                log_path=folder / "log.txt",
                container=self._place.container(self.gang, folder, self.data_dir, self.cache_dir),
                redactor=self._place.redactor,
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte in the command
            self._refuse(task, attempt, claim, f"cannot start in {workdir}: {error}")
            return
        self.started = True
        self._running[task] = RunningTask(task, attempt, slot, claim, folder, trainer)

    def _refuse(self, task: int, attempt: int, claim: TaskClaim, message: str) -> None:
        failure = TaskFailure(claim.node_id, 127, time.time(), 0.0, message)
        self._board.fail(task, attempt, failure)

    def _end(self, run: RunningTask, code: int) -> None:
        """Put the result, or why there is none."""
        self._upload_log(run, last=True)
        now = time.time()
        took_s = run.ran_s
        value, problem = _read_result(run.folder / "result.json") if code == 0 else ("", "")
        if code == 0 and not problem:
            result = TaskResult(run.claim.node_id, run.attempt, now, took_s, value)
            if self._board.commit(run.task, result):
                self._done += 1
            else:
                _say(f"task {run.task} has a result: that of attempt {run.attempt} is refused")
            self._took_s.append(took_s)
            self._close(run)
        else:
            words = problem or run.trainer.error() or (f"signal {-code}" if code < 0 else "")
            self._fail(run, code, f"exit code {code}: {words}" if words else f"exit code {code}")

    def _fail(self, run: RunningTask, code: int, message: str) -> None:
        self._upload_log(run, last=True)
        now = time.time()
        took_s = run.ran_s
        failure = TaskFailure(run.claim.node_id, code, now, took_s, message)
        self._board.fail(run.task, run.attempt, failure)
        self._close(run)

    def _close(self, run: RunningTask) -> None:
        run.trainer.kill()
        del self._running[run.task]
        shutil.rmtree(run.folder, ignore_errors=True)

    def _upload_log(self, run: RunningTask, *, last: bool = False) -> None:
        if not last and time.monotonic() - run.logged_at < LOG_INTERVAL_S:
            return
        with suppress(OSError), run.trainer.log_path.open("rb") as log:
            size = os.fstat(log.fileno()).st_size
            if size == run.logged_bytes:
                return
            log.seek(max(0, size - MAX_LOG_BYTES))
            self._board.put_log(run.task, run.attempt, log.read(MAX_LOG_BYTES))
            run.logged_bytes, run.logged_at = size, time.monotonic()


def _read_result(path: Path) -> tuple[str, str]:
    """Return the JSON object that a task wrote, "{}" for none, and what is wrong with it."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_RESULT_BYTES + 1)
    except FileNotFoundError:
        return "{}", ""
    except OSError as error:
        return "", f"its result cannot be read: {error.strerror}"
    if len(data) > MAX_RESULT_BYTES:
        return "", f"its result is larger than {MAX_RESULT_BYTES >> 10} KiB"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return "", "its result is not a JSON object"
    return json.dumps(value), ""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
