"""What exists and what is to be done about it: nodes and actions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from costopt.domain.market import Pool


class NodeState(StrEnum):
    """A node's life as the provider tells it. WAITING: for capacity; it costs nothing yet."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"

    @property
    def is_alive(self) -> bool:
        """Whether the node exists and may cost money."""
        return self is not NodeState.ENDED


class EndCause(StrEnum):
    """Why a node is gone. LOST is a guess: its provider lists it no more, and tells no end.

    NO_CAPACITY: it waited, and never ran.
    """

    INTERRUPTED = "interrupted"
    RELEASED = "released"
    FAILED = "failed"
    LOST = "lost"
    NO_CAPACITY = "no_capacity"

    @property
    def is_unplanned(self) -> bool:
        """Whether we would have kept the node."""
        return self is not EndCause.RELEASED


@dataclass(frozen=True, slots=True)
class Node:
    """One machine that the provider confirms. ``key`` is the idempotency key of its launch.

    ``usd_per_hour`` is the price at launch. ``launched_at`` is when it began to run, where it had
    to wait for capacity. ``ended_at`` and ``end_cause`` are set when ENDED.
    """

    node_id: str
    owner: str
    job: str
    pool: Pool
    key: str
    state: NodeState
    launched_at: datetime
    usd_per_hour: float
    ended_at: datetime | None = None
    end_cause: EndCause | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All nodes or none. The same ``key`` again returns the same nodes and launches nothing."""

    owner: str
    job: str
    pool: Pool
    nodes: int
    key: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Start ``nodes`` in ``pool`` for ``job``, whose GPUs are to be limited to ``power_cap_w``."""

    job: str
    pool: Pool
    nodes: int
    power_cap_w: float | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """Checkpoint, then release the node."""

    job: str
    node_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Release the node now."""

    job: str
    node_id: str
    reason: str


Action = Launch | Drain | Terminate
