"""Nodes, the actions on them and their bills, and the terms of flex-start capacity.

Flex-start launches wait for capacity, and their nodes run for days without interruptions. By Google
Cloud's Dynamic Workload Scheduler, a request waits for up to two hours, and its nodes run for at
most seven days (https://docs.cloud.google.com/compute/docs/instances/about-flex-start-vms).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from costopt.domain.account_price import AccountPrice
from costopt.domain.market import Offer, Pool

SIMULATED_NODE = "sim-"
"""How the ids of the simulator's nodes begin, and those of no cloud."""


class NodeState(StrEnum):
    """The state of a node by its provider. WAITING: for capacity; it costs nothing yet."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"

    @property
    def is_alive(self) -> bool:
        """Return whether the node exists and may cost money."""
        return self is not NodeState.ENDED


class EndCause(StrEnum):
    """Why a node ended. LOST is an assumption: its provider neither lists it nor reports its end.

    NO_CAPACITY: it waited, and never ran.
    """

    INTERRUPTED = "interrupted"
    RELEASED = "released"
    FAILED = "failed"
    LOST = "lost"
    NO_CAPACITY = "no_capacity"

    @property
    def is_unplanned(self) -> bool:
        """Return whether the node would have been retained otherwise."""
        return self is not EndCause.RELEASED


@dataclass(frozen=True, slots=True)
class Node:
    """One machine that the provider confirms. ``key`` is the idempotency key of its launch.

    ``usd_per_hour`` is the price at launch. ``launched_at`` is when it began to run, if it had to
    wait for capacity. ``ended_at`` and ``end_cause`` are set when ENDED; ``ended_at`` is only when
    the end was seen where ``end_is_estimate``.
    ``account_price`` says how the account's terms changed the price, None where they did not.
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
    end_is_estimate: bool = False
    message: str = ""
    account_price: AccountPrice | None = None


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A launch of all its nodes or none. The same ``key`` again returns the same nodes and launches
    nothing."""

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
    """Checkpoint, then terminate the node."""

    job: str
    node_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Terminate the node now."""

    job: str
    node_id: str
    reason: str


Action = Launch | Drain | Terminate


@dataclass(frozen=True, slots=True)
class NodeBill:
    """The charge for a node by its provider's own rules.

    ``prices`` are (from when, dollars per hour): the first from the launch on, ascending, each in
    force until the next and the last until the node's end. ``min_billed_s`` is the shortest time
    that is charged for, at the last price. ``source`` says which rule and which prices these are.
    """

    prices: tuple[tuple[datetime, float], ...]
    min_billed_s: float
    source: str

    def __post_init__(self) -> None:
        if not self.prices:
            raise ValueError("a bill needs a price from the launch on")


@dataclass(frozen=True, slots=True)
class ProviderCharge:
    """What a job's nodes cost by the provider's own accounts within whole days of UTC.

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
"""The time before its end at which a node is drained, for the last save. Our choice, not published.
"""


def flex_start_offer(offer: Offer, nodes: Iterable[Node], now: datetime) -> Offer:
    """Return the offer with its wait, and the time until which its pool, with these nodes, may be
    planned on.

    A node that is launched now could run until then at least; while some run, none is planned on
    for longer than the first of them.
    """
    begun = [
        node.launched_at for node in nodes if node.state not in (NodeState.WAITING, NodeState.ENDED)
    ]
    until_at = min(begun, default=now) + MAX_RUN - DRAIN_LEAD
    return replace(offer, until_at=until_at, wait_s=MAX_WAIT.total_seconds())
