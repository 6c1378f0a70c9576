"""The board of an array's tasks: what nodes claim, run and end, in the job's store.

jobs/<job>/array.json                           ArrayTasks    controller → agents
jobs/<job>/tasks/<task>/<attempt>.claim         TaskClaim     agent → agents, controller
jobs/<job>/tasks/<task>/<attempt>.failed        TaskFailure   agent → agents, controller
jobs/<job>/tasks/<task>/result                  TaskResult    agent → controller
jobs/<job>/task-logs/<task>/<attempt>           (text)        agent → reader

Whatever nodes do, a task has one result: the first that is put counts, as no object of the board is
ever replaced. A task may be started more often: an attempt whose node is lost is followed by the
next. Only logs are put again as they grow. All methods raise StoreError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from costopt.domain.array import TaskArray
from costopt.domain.errors import SpecError, StoreError
from costopt.domain.object_store import ObjectStore
from costopt.domain.text import encodable_text, untrusted_text
from costopt.protocol.codec import decode_message, encode_message, parse_fields
from costopt.store.guarantees import ensure_guarantees

T = TypeVar("T")
HEADER = {"schema": 1}
MAX_ARRAY_BYTES = 64 << 20
MAX_RESULT_BYTES = 64 << 10
MAX_RECORD_BYTES = 4 * MAX_RESULT_BYTES
"""A result with its quotes and characters escaped, and the record around it."""
MAX_LOG_BYTES = 1 << 20
MAX_KEYS = 200_000
MAX_FIGURES = 32
NAME = re.compile(r"(\d{6})/(?:(\d{4,})\.(claim|failed)|(result))")


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """An array's tasks with their parameters."""

    tasks: int
    names: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def parameters(self, task: int) -> dict[str, str]:
        """Return a task's parameters by name."""
        return dict(zip(self.names, self.rows[task], strict=True)) if self.rows else {}


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """An attempt is a node's. ``at`` is wall time on the node, POSIX seconds."""

    node_id: str
    generation: int
    at: float


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The command of an attempt failed."""

    node_id: str
    exit_code: int
    at: float
    took_s: float
    message: str


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task's one result; ``value`` is a JSON object as text, in the words of the command."""

    node_id: str
    attempt: int
    at: float
    took_s: float
    value: str

    @property
    def figures(self) -> Mapping[str, float]:
        """Return the finite numbers of the object, at most ``MAX_FIGURES`` of them."""
        try:
            value = json.loads(self.value)
        except (ValueError, RecursionError):
            return {}
        found = {}
        for name, number in value.items() if isinstance(value, dict) else ():
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if is_number and abs(number) < 1e300 and math.isfinite(number):
                found[str(name)[:64]] = float(number)
        return dict(list(found.items())[:MAX_FIGURES])


@dataclass(slots=True)
class TaskState:
    """``attempts`` counts the claims; ``failed`` are those whose command failed."""

    attempts: int = 0
    failed: set[int] = field(default_factory=set)
    done: bool = False

    @property
    def is_claimed(self) -> bool:
        """Whether the newest attempt has not ended, as far as the board tells."""
        return self.attempts > 0 and self.attempts not in self.failed and not self.done

    def is_open(self, retries: int) -> bool:
        """Whether the task has neither a result nor failed more often than it may."""
        return not self.done and len(self.failed) <= retries


class TaskBoard:
    """The tasks of one job."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self._store = store
        self._job = job
        self._prefix = f"jobs/{job}/"

    def publish(self, array: TaskArray) -> None:
        """Write the tasks once. Raise SpecError where there are others: their results are not
        results of these; StoreError where the store does not guarantee that one node has a task."""
        ensure_guarantees(self._store)
        tasks = ArrayTasks(array.tasks, array.names, array.rows)
        self._store.put_if_absent(f"{self._prefix}array.json", _encode(tasks))
        known = self.array()
        if known != tasks:
            raise SpecError(
                f"the tasks of job {self._job!r} have changed since it began",
                hint="restore its parameters, or give the job another name",
                code="array_changed",
            )

    def array(self) -> ArrayTasks | None:
        """Return the tasks, None before they are published."""
        fields = self._fields("array.json", MAX_ARRAY_BYTES, encodable_text)
        return decode_message(ArrayTasks, fields)

    def states(self) -> dict[int, TaskState]:
        """Return the state of each task that was ever claimed, from the names of the objects."""
        prefix = f"{self._prefix}tasks/"
        keys = self._store.keys(prefix, most=MAX_KEYS + 1)
        if len(keys) > MAX_KEYS:
            raise StoreError(
                f"{prefix} holds more than {MAX_KEYS:,} objects",
                hint="check what the job's command writes there, and remove it",
                code="too_many_letters",
            )
        states: dict[int, TaskState] = {}
        for key in keys:
            match = NAME.fullmatch(key.removeprefix(prefix))
            if match is not None:
                _count(states.setdefault(int(match[1]), TaskState()), match)
        return states

    def claim(self, task: int, attempt: int, claim: TaskClaim) -> bool:
        """Take an attempt, counted from 1; return False if another node has it."""
        return self._store.put_if_absent(self._key(task, f"{attempt:04d}.claim"), _encode(claim))

    def claimed(self, task: int, attempt: int) -> TaskClaim | None:
        """Return who has the attempt."""
        return self._read(TaskClaim, task, f"{attempt:04d}.claim")

    def fail(self, task: int, attempt: int, failure: TaskFailure) -> None:
        """Record that the attempt's command failed."""
        self._store.put_if_absent(self._key(task, f"{attempt:04d}.failed"), _encode(failure))

    def failure(self, task: int, attempt: int) -> TaskFailure | None:
        """Return why the attempt failed."""
        return self._read(TaskFailure, task, f"{attempt:04d}.failed")

    def commit(self, task: int, result: TaskResult) -> bool:
        """Put the task's result; return False if it has one: the first counts."""
        return self._store.put_if_absent(self._key(task, "result"), _encode(result))

    def result(self, task: int) -> TaskResult | None:
        """Return the task's result, None before it."""
        return self._read(TaskResult, task, "result", encodable_text)

    def forget_failures(self) -> None:
        """Let tasks that failed fail as often again; what they did wrong has been fixed."""
        for task, state in self.states().items():
            for attempt in () if state.done else state.failed:
                self._store.delete(self._key(task, f"{attempt:04d}.failed"))

    def put_log(self, task: int, attempt: int, data: bytes) -> None:
        """Replace the attempt's log by its newest ``MAX_LOG_BYTES``."""
        self._store.put(self._log_key(task, f"{attempt:04d}"), data[-MAX_LOG_BYTES:])

    def logs(self, task: int) -> Iterable[tuple[int, str]]:
        """Yield the attempts of a task with their logs, in order."""
        prefix = self._log_key(task, "")
        for key in self._store.keys(prefix, most=MAX_KEYS):
            name = key.removeprefix(prefix)
            data = self._store.get(key, MAX_LOG_BYTES) if name.isdecimal() else None
            if data is not None:
                yield int(name), data.decode(errors="replace")

    def _read(
        self,
        kind: Callable[..., T],
        task: int,
        name: str,
        clean: Callable[[str], str] | None = None,
    ) -> T | None:
        key = self._key(task, name).removeprefix(self._prefix)
        return decode_message(kind, self._fields(key, MAX_RECORD_BYTES, clean or untrusted_text))

    def _fields(
        self, name: str, max_bytes: int, clean: Callable[[str], str]
    ) -> dict[str, Any] | None:
        return parse_fields(self._store.get(self._prefix + name, max_bytes), clean, HEADER)

    def _key(self, task: int, name: str) -> str:
        return f"{self._prefix}tasks/{task:06d}/{name}"

    def _log_key(self, task: int, name: str) -> str:
        return f"{self._prefix}task-logs/{task:06d}/{name}"


def _count(state: TaskState, match: re.Match[str]) -> None:
    if match[4]:
        state.done = True
        return
    attempt = int(match[2])
    if match[3] == "failed":
        state.failed.add(attempt)
    else:
        state.attempts = max(state.attempts, attempt)


def _encode(record: ArrayTasks | TaskClaim | TaskFailure | TaskResult) -> bytes:
    return encode_message(record, HEADER)
