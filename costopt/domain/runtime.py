"""The Runtime port and what nodes report.

The training runtime on the nodes as the controller reaches it, and what it tells.

What a node needs before it can train: our agent and the job's code, as files of a store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from costopt.domain.fleet import Node
from costopt.domain.job import Job, Progress
from costopt.domain.power import PowerCap


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A durable checkpoint, as the training runtime reported it."""

    units: float
    uri: str
    committed_at: datetime
    size_bytes: int | None = None
    save_s: float | None = None


@dataclass(frozen=True, slots=True)
class RejectedCheckpointRecord:
    """A checkpoint that the training runtime found torn or corrupt and passed over."""

    uri: str
    message: str


@dataclass(frozen=True, slots=True)
class PowerLimitRecord:
    """What a node says of the power limit that it was asked to set.

    ``cap_w`` is what each GPU is limited to on our behalf, None where that came to nothing or was
    taken back; ``message`` says how. ``asked_w`` is what was asked for, None once it no more is.
    """

    node_id: str
    asked_w: float | None
    cap_w: float | None
    message: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node says of itself: totals from ``from_at`` to ``until_at``; unknown is None.

    ``metered_wh`` is what the meters of ``parts`` ("gpu", "cpu") read, over ``gpus`` GPUs;
    ``training_wh`` of it in the ``training_s`` for which the trainer trained. ``final`` says that
    nothing trains there any more. ``guarantee`` is how exact its trainer's result is, "" where it
    says nothing. ``warning`` is what the provider says short of a notice, or ""; ``interrupts_at``
    when the provider takes the node, None while the node has heard of no notice.
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
    step_s: float | None = None
    data_wait_share: float | None = None
    goodput: float | None = None
    interval_s: float | None = None
    interval_reason: str = ""
    guarantee: str = ""
    warning: str = ""
    interrupts_at: datetime | None = None


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
        """Tell these nodes to train together. The first node is rank 0. Idempotent.

        Their GPUs are limited to ``power_cap`` before training begins, and no more once it ends.
        """
        ...

    def cap_power(self, job: Job, power_cap: PowerCap | None) -> None:
        """Limit the GPUs of the gang that trains to this from now on, or no more. Idempotent."""
        ...

    def power_limits(self, job: Job) -> tuple[PowerLimitRecord, ...]:
        """What the gang's nodes say of their power limits; none where none was asked for."""
        ...

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:
        """What the gang's nodes say of themselves, by rank; none where nothing is measured."""
        ...

    def progress(self, job: Job, now: datetime) -> Progress:
        """How far the job is, from the newest reports; a job never heard of has done nothing."""
        ...

    def checkpoints(self, job: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
        """Durable checkpoints beyond ``after_units``, ascending."""
        ...

    def rejected_checkpoints(self, job: Job) -> tuple[RejectedCheckpointRecord, ...]:
        """Every checkpoint that was ever refused, in a fixed order."""
        ...

    def unreported(self, job: Job, node_ids: Iterable[str]) -> frozenset[str]:
        """Those of these nodes that have never reported anything."""
        ...

    def drain(self, job: Job, node_ids: Iterable[str]) -> None:
        """Ask these nodes to checkpoint and stop training. Idempotent."""
        ...

    def is_drained(self, job: Job) -> frozenset[str]:
        """Nodes that have stopped training after a drain and may be released."""
        ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is named by its content: ``key`` in the store holds ``sha256``."""

    key: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Payload:
    """``wheel`` is costopt itself, ``bundle`` a tar.gz of the job's folder, both under ``store``.

    ``store`` is the URI that nodes reach the controller through; ``requirements`` are what the
    wheel needs of other packages, as pip takes them, where a node's image lacks them.
    """

    job: str
    store: str
    wheel: StoredFile
    bundle: StoredFile
    requirements: tuple[str, ...] = ()
