"""Arrays: jobs whose work is many tasks that are independent of each other.

Each task runs the job's command with its own parameters, on one node, and ends with a result. So an
array's nodes are independent, too: a lost node costs the tasks that it ran, and their number may
change at any time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costopt.domain.job import Job
    from costopt.domain.market import InstanceType


PLACEHOLDER = re.compile(r"\{\{(?P<itself>\w+)\}\}|(?<!\$)\{(?P<name>[A-Za-z_]\w*)\}", re.ASCII)
"""A parameter in a task's command, or with two braces what stands for itself. ``${NAME}`` is the
shell's."""


def placeholder_names(word: str) -> tuple[str, ...]:
    """Return the parameters that a word of a command names."""
    return tuple(match["name"] for match in PLACEHOLDER.finditer(word) if match["name"])


def fill_placeholders(word: str, parameters: Mapping[str, str]) -> str:
    """Return the word with each parameter's value for its name."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        return parameters.get(name, match[0]) if name else f"{{{match['itself']}}}"

    return PLACEHOLDER.sub(value, word)


@dataclass(frozen=True, slots=True)
class StopRule:
    """Ends an array early once a result's ``metric`` is at least ``above``, or at most ``below``.

    One of the two is None.
    """

    metric: str
    above: float | None = None
    below: float | None = None

    def stop_reason(self, figures: Mapping[str, float]) -> str | None:
        """Return why a task with these figures ends the array; None where it does not."""
        value = figures.get(self.metric)
        if value is None:
            return None
        if self.above is not None and value >= self.above:
            return f"{self.metric} is {value:g}, at least {self.above:g}"
        if self.below is not None and value <= self.below:
            return f"{self.metric} is {value:g}, at most {self.below:g}"
        return None


@dataclass(frozen=True, slots=True)
class TaskArray:
    """The tasks of a job, numbered from 0.

    ``gpus_per_task`` of a node's GPUs are a task's alone. A command that fails is started again up
    to ``retries`` times; then its task has failed. One that runs longer than ``timeout_s`` is
    killed and counts as failed. More than ``max_failures`` failed tasks fail the job. ``rows`` hold
    each task's values of the parameters ``names``; no names, no rows.
    """

    tasks: int
    gpus_per_task: int = 1
    retries: int = 2
    timeout_s: float | None = None
    max_failures: int = 0
    names: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    stop: StopRule | None = None

    def parameters(self, task: int) -> dict[str, str]:
        """Return a task's parameters by name."""
        return dict(zip(self.names, self.rows[task], strict=True)) if self.rows else {}


class TaskOutcome(StrEnum):
    """How a task ended."""

    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task that ended for good, as the training runtime reported it.

    ``starts`` counts how often its command was started, those on lost nodes included. ``took_s`` is
    how long the last one ran, in the job's time; None where it is unknown. ``figures`` are the
    numbers of its result. ``message`` is why it failed, else "". ``lost_s`` is how long it ran on
    nodes that were lost, as far as is known.
    """

    task: int
    outcome: TaskOutcome
    starts: int
    node_id: str
    ended_at: datetime
    took_s: float | None = None
    figures: tuple[tuple[str, float], ...] = ()
    message: str = ""
    lost_s: float = 0.0


def parallel_tasks(job: Job, machine: InstanceType, nodes: int) -> int | None:
    """Return how many of an array's tasks ``nodes`` run at once; None for any other job."""
    if job.array is None:
        return None
    useful = job.resources.useful_gpus or job.array.tasks * job.array.gpus_per_task
    return max(1, min(machine.gpu_count * nodes, useful) // job.array.gpus_per_task)


def max_task_s(job: Job) -> float:
    """Return the seconds that an array's task takes on the slowest GPU; 0 for any other job."""
    points = () if job.array is None else job.throughput.points
    return max((1 / point.units_per_s for point in points), default=0.0)


def with_remaining_tasks(job: Job, saved_units: float, busy_gpus: int) -> Job:
    """Return the array without nodes that would find no task; any other job as it is.

    Nodes with ``busy_gpus`` in total run tasks: none of them is to go before these end.
    """
    if job.array is None:
        return job
    left = max(1, math.ceil(job.work.amount - saved_units - 1e-9)) * job.array.gpus_per_task
    left = max(left, busy_gpus)
    resources = job.resources
    if resources.useful_gpus is not None and left >= resources.useful_gpus:
        return job
    fewest = None if resources.min_gpus is None else min(resources.min_gpus, left)
    return replace(
        job,
        resources=replace(resources, min_gpus=fewest, useful_gpus=left),
        throughput=replace(job.throughput, independent_gpus=left),
    )
