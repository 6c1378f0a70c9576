"""Node, actions, NodeBill, flex-start terms.

What exists and what is to be done about it: nodes and actions.

What a provider charges for a node, once it has ended.

Flex-start: a launch that waits for capacity, and nodes that run for days and are not taken.

Google Cloud's Dynamic Workload Scheduler: a request waits for up to two hours, and what it gives
runs for seven days at most
(https://docs.cloud.google.com/compute/docs/instances/about-flex-start-vms).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from costopt.domain.market import Offer, Pool


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


@dataclass(frozen=True, slots=True)
class NodeBill:
    """The charge for a node by its provider's own rules.

    ``prices`` are (from when, dollars per hour): the first from the launch on, ascending, each in
    force until the next and the last until the node's end. ``least_s`` is the shortest time that is
    charged for, at the last price. ``source`` says which rule and which prices these are.
    """

    prices: tuple[tuple[datetime, float], ...]
    least_s: float
    source: str

    def __post_init__(self) -> None:
        if not self.prices:
            raise ValueError("a bill needs a price from the launch on")


@dataclass(frozen=True, slots=True)
class ProviderCharge:
    """What the provider's own accounts say that a job's nodes cost within whole days of UTC.

    ``from_at`` is the first day's beginning, ``until_at`` the end of the last. ``source`` says
    whose figure it is, and whether it may still change.
    """

    provider: str
    job: str
    from_at: datetime
    until_at: datetime
    usd: float
    source: str


MAX_WAIT = timedelta(hours=2)
MAX_RUN = timedelta(days=7)
DRAIN_LEAD = timedelta(minutes=15)
"""So long before its end a node is left: time for the last save. Ours, not published."""


def flex_start_offer(offer: Offer, nodes: Iterable[Node], now: datetime) -> Offer:
    """The offer with its wait, and until when its pool may be planned on, whose nodes these are.

    A node that is launched now could run until then at least; while some run, none is planned on
    for longer than the first of them.
    """
    begun = [
        node.launched_at for node in nodes if node.state not in (NodeState.WAITING, NodeState.ENDED)
    ]
    until_at = min(begun, default=now) + MAX_RUN - DRAIN_LEAD
    return replace(offer, until_at=until_at, wait_s=MAX_WAIT.total_seconds())
