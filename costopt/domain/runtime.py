"""The port to the training runtime on the nodes, and the records that nodes report through it.

Also what a node needs before it can train: our agent and the job's code, as files of a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from costopt.domain.array import TaskRecord
from costopt.domain.fleet import Node
from costopt.domain.gpu_health import GpuHealth
from costopt.domain.job import Job
from costopt.domain.power import PowerCap
from costopt.domain.progress import Progress
from costopt.domain.step_figures import StepFigures

CONTAINER_RUNTIMES = ("podman", "docker")
"""Programs that run a job's image, the one with precedence first."""


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A durable checkpoint, as the training runtime reported it.

    ``generation`` is that of the gang that saved it, 0 where it is unknown.
    """

    units: float
    uri: str
    committed_at: datetime
    size_bytes: int | None = None
    save_s: float | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class RejectedCheckpointRecord:
    """A checkpoint that the training runtime found torn or corrupt, and skipped."""

    uri: str
    message: str


@dataclass(frozen=True, slots=True)
class PowerLimitRecord:
    """What a node reports of the power limit that it was asked to set.

    ``cap_w`` is what each GPU is limited to on our behalf, None where that failed or was removed;
    ``message`` says how. ``asked_w`` is what was requested, None once it no longer is.
    """

    node_id: str
    asked_w: float | None
    cap_w: float | None
    message: str


@dataclass(frozen=True, slots=True)
class PowerProbeRecord:
    """What a node reports of probe ``number`` of its gang.

    The gang did ``units`` of work in ``seconds`` of the job's time; the meters of ``parts`` read
    ``metered_w`` on average, over ``gpus`` GPUs.

    ``cap_w`` is the limit that was set, ``min_w`` the lowest that its GPUs allow, ``limit_w`` the
    lowest in force before. Where ``message`` is not empty, nothing was measured.
    """

    node_id: str
    number: int
    cap_w: float | None = None
    units: float = 0.0
    seconds: float = 0.0
    metered_w: float = 0.0
    parts: tuple[str, ...] = ()
    gpus: int = 0
    min_w: float = 0.0
    limit_w: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class CacheFetchRecord:
    """A node has the job's cache: ``gib`` of it were fetched in ``seconds``, the rest was there."""

    gib: float
    held_gib: float
    seconds: float


@dataclass(frozen=True, slots=True)
class NodeReport(StepFigures):
    """A node's own measurements: totals from ``from_at`` to ``until_at``; unknown is None.

    ``metered_wh`` is what the meters of ``parts`` ("gpu", "cpu", or the whole "node") read, over
    ``gpus`` GPUs; ``training_wh`` the part of it in the ``training_s`` for which the trainer
    trained. ``final`` means that nothing trains there any more. ``guarantee`` is how exact its
    trainer's result is, "" where it does not say. ``warning`` is the provider's warning short of a
    notice, or ""; ``interrupts_at`` is when the provider interrupts the node, None without a
    notice. ``cache`` is None until the node has the job's cache.
    Seconds are the job's time; shares are 0–1.
    """

    node_id: str
    from_at: datetime
    until_at: datetime
    metered_wh: float | None = None
    parts: tuple[str, ...] = ()
    gpus: int = 0
    training_wh: float = 0.0
    training_s: float = 0.0
    final: bool = False
    gpu_utilization: float | None = None
    gpu_memory_share: float | None = None
    interval_s: float | None = None
    interval_reason: str = ""
    guarantee: str = ""
    warning: str = ""
    interrupts_at: datetime | None = None
    gpu_health: GpuHealth | None = None
    cache: CacheFetchRecord | None = None


class Runtime(Protocol):
    """The training runtime on the nodes, as the controller reaches it."""

    def form_gang(
        self,
        job: Job,
        generation: int,
        nodes: tuple[Node, ...],
        checkpoint_interval_s: float,
        power_cap: PowerCap | None = None,
    ) -> None:
        """Start training on these nodes together. The first node is rank 0. Idempotent.

        The nodes of an array take tasks on their own; those that did before go on.
        Their GPUs are limited to ``power_cap`` before training begins, until it ends.
        """
        ...

    def cap_power(self, job: Job, power_cap: PowerCap | None) -> None:
        """Set the power limit of the training gang's GPUs from now on, or remove it. Idempotent."""
        ...

    def power_limits(self, job: Job) -> tuple[PowerLimitRecord, ...]:
        """Return the nodes' reports of their power limits; none where none was requested."""
        ...

    def probe_power_limit(self, job: Job, number: int, cap_w: float | None, seconds: float) -> None:
        """Measure the training gang once under a limit, of None as it is, for ``seconds`` of the
        job's time. All its nodes are limited at once, then have the limits that they had before.
        Idempotent: ``number`` grows with each probe of a generation.
        """
        ...

    def power_probes(self, job: Job) -> tuple[PowerProbeRecord, ...]:
        """Return the newest probe of each node of the gang that has completed one."""
        ...

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:
        """Return the nodes' own measurements, by rank; none where nothing is measured."""
        ...

    def progress(self, job: Job, now: datetime) -> Progress:
        """Return the job's progress by the newest reports; an unknown job has done nothing."""
        ...

    def settled_tasks(self, job: Job) -> tuple[TaskRecord, ...]:
        """Return the tasks of an array that ended for good, each once; () for any other job."""
        ...

    def checkpoints(self, job: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
        """Return durable checkpoints beyond ``after_units``, ascending."""
        ...

    def rejected_checkpoints(self, job: Job) -> tuple[RejectedCheckpointRecord, ...]:
        """Return every checkpoint that was ever rejected, in a fixed order."""
        ...

    def unreported(self, job: Job, node_ids: Iterable[str]) -> frozenset[str]:
        """Return those of these nodes that have never reported anything."""
        ...

    def unreachable_s(self, job: Job, node_ids: Iterable[str]) -> Mapping[str, float]:
        """Return since when those of these nodes that have reported do so no longer, in seconds."""
        ...

    def last_heartbeat_at(self, job: Job, node_ids: Iterable[str]) -> Mapping[str, datetime]:
        """Return when those of these nodes that have reported did so last, by their own clocks."""
        ...

    def drain(self, job: Job, node_ids: Iterable[str]) -> None:
        """Ask these nodes to checkpoint and stop training. Idempotent."""
        ...

    def is_drained(self, job: Job) -> frozenset[str]:
        """Return the nodes that have stopped training after a drain and may be released."""
        ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file named by its content: ``key`` in the store holds the bytes with this ``sha256``."""

    key: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Payload:
    """``wheel`` is costopt itself, ``bundle`` a tar.gz of the job's folder, both under ``store``.

    ``store`` is the URI through which nodes reach the controller; ``requirements`` are the wheel's
    dependencies, as pip takes them, where a node's image lacks them.
    """

    job: str
    store: str
    wheel: StoredFile
    bundle: StoredFile
    requirements: tuple[str, ...] = ()
