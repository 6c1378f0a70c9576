"""What Slurm reports of jobs, partitions, nodes and reservations, whatever form it came in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

WAITING_STATES = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
STARTING_STATES = frozenset({"CONFIGURING"})
RUNNING_STATES = frozenset(
    {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
STOPPING_STATES = frozenset({"COMPLETING"})


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job of the queue, or of the accounts once the queue has forgotten it.

    ``hosts`` is empty before it starts. ``ends_at`` is its end once it has ended, else its time
    limit's. ``preempted_at`` is when Slurm began to preempt it. Unknown is None.
    """

    job_id: int
    name: str
    state: str
    partition: str
    hosts: tuple[str, ...]
    submitted_at: datetime
    started_at: datetime | None
    ends_at: datetime | None
    preempted_at: datetime | None = None
    time_limit_s: float | None = None
    exit_code: int = 0
    restarts: int = 0
    reason: str = ""
    comment: str = ""

    @property
    def is_waiting(self) -> bool:
        """Return whether it is in the queue."""
        return self.state in WAITING_STATES

    @property
    def is_over(self) -> bool:
        """Return whether it has ended and its nodes are free."""
        living = WAITING_STATES | STARTING_STATES | RUNNING_STATES | STOPPING_STATES
        return self.state not in living

    @property
    def has_run(self) -> bool:
        """Return whether it ever held nodes."""
        return self.started_at is not None and bool(self.hosts)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition. Time limits are None where there is none; ``grace_s`` is its GraceTime.

    ``preempt_mode`` is None where it is not shown, as by slurmrestd.
    """

    name: str
    is_up: bool
    preempt_mode: str | None
    grace_s: float
    max_time_s: float | None
    default_time_s: float | None


@dataclass(frozen=True, slots=True)
class PartitionNode:
    """A node as a partition shows it. ``state`` has no suffix unless it cannot be used now."""

    host: str
    partition: str
    state: str
    gres: str
    features: frozenset[str]

    @property
    def is_idle(self) -> bool:
        """Return whether a job could start there: ``idle~`` is powered up for it."""
        return self.state in ("idle", "idle~")


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What jobs of all users hold of a node; ``is_up``: it takes new ones."""

    is_up: bool
    gpus_used: int
    cpus: int
    cpus_idle: int
    memory_mb: int

    def free_gpus(self, gpus: int) -> int:
        """Return how many of the node's GPUs are free, with their share of its processors."""
        by_cpus = self.cpus_idle * gpus // max(1, self.cpus)
        return max(0, min(gpus - self.gpus_used, by_cpus)) if self.is_up else 0


@dataclass(frozen=True, slots=True)
class ReservedTime:
    """A reservation of nodes, such as for maintenance."""

    name: str
    starts_at: datetime
    ends_at: datetime
    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What the cluster's configuration says; None where it is not shown, as by slurmrestd.

    ``accounting``: the accounts know ended jobs.
    """

    version: str
    name: str
    preempt_type: str | None
    min_job_age_s: float | None
    accounting: bool
    proctrack: str | None

    @property
    def is_preempting(self) -> bool:
        """Return whether jobs may be preempted at all: newer versions show (null) for none."""
        return self.preempt_type not in ("", "preempt/none")
