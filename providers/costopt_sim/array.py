"""Simulated arrays: tasks on nodes that work alone, each as long as the job says.

A node takes tasks from when it has started up until its interruption is noticed or it is drained.
It finishes what it runs, unless it goes before: then these tasks are open again.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from costopt.domain.array import TaskOutcome, TaskRecord
from costopt.domain.job import Job
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import CheckpointRecord
from costopt_sim.fleet import SimFleet


@dataclass(slots=True)
class SimulatedWorker:
    """A node from ``ready_at`` on; ``slots`` tasks run at once, of ``task_s`` seconds each."""

    node_id: str
    ready_at: datetime
    slots: int
    task_s: float
    running: dict[int, datetime] = field(default_factory=dict)


class SimulatedArray:
    """An array's tasks over all of its nodes."""

    def __init__(self, job: Job, fleet: SimFleet, tasks: int) -> None:
        self.generation = 0
        self._job = job
        self._fleet = fleet
        self._tasks = tasks
        self._open = deque(range(tasks))
        self._starts: Counter[int] = Counter()
        self._workers: dict[str, SimulatedWorker] = {}
        self._members: tuple[str, ...] = ()
        self._asked: set[str] = set()
        self._gone: set[str] = set()
        self._events: list[tuple[datetime, str, int]] = []
        self._fleet_version = -1
        self._speed = 1.0
        self._lost_units = 0.0
        self.records: list[TaskRecord] = []

    @property
    def finished(self) -> bool:
        """Whether every task is done."""
        return len(self.records) == self._tasks

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes that work."""
        return () if self.finished else self._members

    def knows(self, node_id: str) -> bool:
        """Whether the node has joined before."""
        return node_id in self._workers

    def join(
        self, generation: int, members: Iterable[str], new: Iterable[SimulatedWorker], now: datetime
    ) -> None:
        """Let these members, of which some are new, take tasks from now on, and no others."""
        self.generation = generation
        self._members = tuple(members)
        self._asked.difference_update(self._members)
        for worker in new:
            self._workers[worker.node_id] = worker
            heapq.heappush(self._events, (worker.ready_at, worker.node_id, -1))
        self._fleet_version = -1
        self.settle(now)
        self._assign(now)

    def change_speed(self, factor: float, now: datetime) -> None:
        """Tasks that begin from now on are ``factor`` times as fast."""
        self.settle(now)
        self._speed *= factor

    def settle(self, now: datetime) -> None:
        """Play all nodes up to ``now``."""
        if self._fleet_version != self._fleet.version:
            self._fleet_version = self._fleet.version
            for node_id in self._workers.keys() - self._gone:
                ending = self._fleet.ending(node_id)
                if ending is not None:
                    heapq.heappush(self._events, (ending.at, node_id, -1))
        while self._events and self._events[0][0] <= now:
            at, node_id, task = heapq.heappop(self._events)
            self._happen(at, self._workers[node_id], task)
            self._assign(at)

    def progress(self, now: datetime) -> Progress:
        """What is done at ``now``, after ``settle(now)``."""
        working = [w for n in self._members if (w := self._workers[n]) and n not in self._gone]
        state = self._state(working, now)
        ready_at = min((w.ready_at for w in working), default=now)
        rate = sum(w.slots / w.task_s for w in working) * self._speed
        saved = float(len(self.records))
        parts = sum(
            (now - began_at).total_seconds() * self._speed / worker.task_s
            for worker in working
            for began_at in worker.running.values()
        )
        return Progress(
            done_units=min(saved + parts, float(self._tasks)),
            saved_units=saved,
            state=state,
            generation=self.generation,
            starting_until=ready_at if state is GangState.STARTING else None,
            measured_units_per_s=rate if state is GangState.TRAINING else None,
            lost_units=self._lost_units,
            message="" if working or self.finished else "no node is left",
            busy_nodes=frozenset(n for n, worker in self._workers.items() if worker.running),
        )

    def checkpoints(self, after_units: float) -> tuple[CheckpointRecord, ...]:  # noqa: ARG002
        """Tasks save nothing but their results."""
        return ()

    def drain(self, node_ids: Iterable[str], now: datetime) -> None:
        """These nodes take no more tasks."""
        self.settle(now)
        self._asked.update(node_ids)

    def drained(self) -> frozenset[str]:
        """Nodes that were asked to drain and run no task."""
        workers = self._workers
        return frozenset(n for n in self._asked if n not in workers or not workers[n].running)

    def _state(self, working: list[SimulatedWorker], now: datetime) -> GangState:
        if self.finished:
            return GangState.FINISHED
        if any(worker.running for worker in working):
            return GangState.TRAINING
        return GangState.STARTING if any(w.ready_at > now for w in working) else GangState.IDLE

    def _happen(self, at: datetime, worker: SimulatedWorker, task: int) -> None:
        """A task ends, or, where there is no task, the node may have started up or gone."""
        if task in worker.running:
            began_at = worker.running.pop(task)
            took_s = (at - began_at).total_seconds()
            done = TaskOutcome.DONE
            self.records.append(
                TaskRecord(task, done, self._starts[task], worker.node_id, at, took_s)
            )
        ending = self._fleet.ending(worker.node_id)
        if ending is not None and ending.at <= at:
            self._gone.add(worker.node_id)
            for lost, began_at in worker.running.items():
                self._lost_units += (at - began_at).total_seconds() * self._speed / worker.task_s
                self._open.appendleft(lost)
            worker.running.clear()

    def _assign(self, at: datetime) -> None:
        for node_id in self._members if self._open else ():
            worker = self._workers[node_id]
            while self._open and len(worker.running) < worker.slots and self._takes(worker, at):
                task = self._open.popleft()
                self._starts[task] += 1
                worker.running[task] = at
                ends_at = at + timedelta(seconds=worker.task_s / self._speed)
                heapq.heappush(self._events, (ends_at, node_id, task))

    def _takes(self, worker: SimulatedWorker, at: datetime) -> bool:
        if worker.node_id in self._asked | self._gone or at < worker.ready_at:
            return False
        ending = self._fleet.ending(worker.node_id)
        return ending is None or at < ending.at - (ending.notice or timedelta())
