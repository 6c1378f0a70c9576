"""How far an array is, from the board of its tasks and the heartbeats of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from costopt.controller.gang_status import CENTURY_S, GangMember, TimeScale, duration_s
from costopt.domain.array import TaskArray, TaskOutcome, TaskRecord, max_task_s
from costopt.domain.job import Job
from costopt.domain.progress import GangState, Progress
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, NodeActivity
from costopt.protocol.tasks import TaskBoard, TaskState

MAX_READ = 500
"""New results that one call reads: an array that ran without a controller delays no other job."""
MAX_TASKS_PER_S = 1e6
LEFT = (NodeActivity.STOPPED, NodeActivity.GONE)


class ArrayReader:
    """The tasks of one job that ended for good. Each result is read once."""

    def __init__(self, board: TaskBoard, mailbox: Mailbox) -> None:
        self._board = board
        self._mailbox = mailbox
        self._records: dict[int, TaskRecord] = {}

    @property
    def records(self) -> tuple[TaskRecord, ...]:
        """Return the tasks, in the order in which they were read."""
        return tuple(self._records.values())

    def read(self, array: TaskArray, scale: TimeScale) -> None:
        """Read what has ended since the last call. Raises StoreError."""
        states = self._board.states()
        ended = [task for task, state in states.items() if not state.is_open(array.retries)]
        new = [task for task in ended if task not in self._records and task < array.tasks]
        for task in new[:MAX_READ]:
            lost_s = self._lost_s(task, states[task], scale)
            self._records[task] = replace(self._record(task, states[task], scale), lost_s=lost_s)

    def forget_failures(self) -> None:
        """Let failed tasks be tried again. Raises StoreError."""
        self._board.forget_failures()
        for record in self.records:
            if record.outcome is TaskOutcome.FAILED:
                del self._records[record.task]

    def _lost_s(self, task: int, state: TaskState, scale: TimeScale) -> float:
        """How long attempts ran on nodes that were lost: until their last heartbeats."""
        lost_s = 0.0
        for attempt in range(1, min(state.attempts, MAX_READ)):
            claim = None if attempt in state.failed else self._board.claimed(task, attempt)
            beat = None if claim is None else self._mailbox.heartbeat(claim.node_id)
            if claim is not None and beat is not None:
                lost_s += duration_s(beat.at - claim.at, scale.speed) or 0.0
        return lost_s

    def _record(self, task: int, state: TaskState, scale: TimeScale) -> TaskRecord:
        """What the job's own code may have written over counts as ended without particulars."""
        outcome = TaskOutcome.DONE if state.done else TaskOutcome.FAILED
        result = self._board.result(task) if state.done else None
        failure = None if state.done else self._board.failure(task, max(state.failed))
        ended = result or failure
        if ended is None:
            return TaskRecord(task, outcome, state.attempts, "", scale.now)
        return TaskRecord(
            task,
            outcome,
            state.attempts,
            ended.node_id,
            scale.job_time(ended.at),
            duration_s(ended.took_s, scale.speed),
            () if result is None else tuple(result.figures.items()),
            "" if failure is None else failure.message,
        )


def array_progress(
    job: Job,
    array: TaskArray,
    records: Sequence[TaskRecord],
    gang: Gang,
    members: Sequence[GangMember],
    scale: TimeScale,
) -> Progress:
    """Return the progress of an array whose newest nodes are ``members``.

    Its speed is the mean of the nodes that report one, times all that work. Parts of tasks that run
    are done and not saved; a node's report may be older than the end of its task.
    """
    saved = float(len(records))
    beats = [m.heartbeat for m in members if m.heartbeat is not None and not m.silent]
    alive = [beat for beat in beats if beat.state not in LEFT]
    rates = [rate for beat in alive if _is_possible(rate := beat.units_per_s or 0.0)]
    state, message = _state(array, records, gang, len(alive))
    mean = sum(rates) / len(rates) if rates else 0.0
    slots = dict(zip(gang.members, gang.task_slots, strict=False))
    ended = Counter(record.node_id for record in records)
    parts = sum(
        min(max(0.0, beat.done_units - ended[beat.node_id]), slots.get(beat.node_id, 0))
        for beat in alive
    )
    working = mean > 0 and state is GangState.TRAINING
    return Progress(
        done_units=min(saved + parts, job.work.amount) if state is GangState.TRAINING else saved,
        saved_units=saved,
        state=state,
        generation=gang.generation,
        measured_units_per_s=mean * len(alive) / scale.speed if working else None,
        lost_units=sum(record.lost_s for record in records) / max_task_s(job),
        message=message,
        busy_nodes=frozenset(beat.node_id for beat in alive if beat.state.is_training),
    )


def _is_possible(rate: float) -> bool:
    """Whether a task would take between a millisecond and a century."""
    return 1 / CENTURY_S <= rate <= MAX_TASKS_PER_S


def _state(
    array: TaskArray, records: Sequence[TaskRecord], gang: Gang, alive: int
) -> tuple[GangState, str]:
    failed = [record for record in records if record.outcome is TaskOutcome.FAILED]
    if len(failed) > array.max_failures:
        last = failed[-1]
        return GangState.FAILED, (
            f"{len(failed)} tasks failed, {array.max_failures} may; task {last.task}, "
            f"started {last.starts} times: {last.message}"
        )
    stopped = _stop_reason(array, records)
    if stopped is not None or len(records) == array.tasks:
        return GangState.FINISHED, stopped or ""
    if alive:
        return GangState.TRAINING, ""
    return GangState.IDLE, f"no heartbeat from {', '.join(gang.members)}"


def _stop_reason(array: TaskArray, records: Sequence[TaskRecord]) -> str | None:
    if array.stop is None:
        return None
    reasons = ((r.task, array.stop.stop_reason(dict(r.figures))) for r in records)
    return next((f"stopped by task {task}: {why}" for task, why in reasons if why), None)
