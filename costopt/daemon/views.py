"""What the daemon tells of itself: frozen, and safe to hand to any thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from costopt.domain.control import Halt, Mode
from costopt.domain.events import DecisionMade
from costopt.domain.fleet import NodeState
from costopt.domain.market import Offer
from costopt.domain.submission import Submission
from costopt.ledger.summary import JobSummary


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A living node. ``usd_per_hour`` is the price at launch."""

    node_id: str
    job: str
    tenant: str
    pool: str
    state: NodeState
    launched_at: datetime
    usd_per_hour: float
    draining: bool
    interrupts_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job that was handed in, and how it stands.

    ``summary`` is of the last tick. ``blocked_by`` says why it gets no nodes now, "" where
    nothing holds it. ``slack_s`` is that of its last decision, None where it is not known.
    """

    submission: Submission
    summary: JobSummary
    blocked_by: str
    slack_s: float | None
    decision: DecisionMade | None
    nodes: tuple[FleetNode, ...]


@dataclass(frozen=True, slots=True)
class FleetView:
    """All living nodes at the last tick. ``orphans`` are what nobody answers for."""

    now: datetime
    nodes: tuple[FleetNode, ...]
    usd_per_hour: float
    mode: Mode
    halt: Halt | None
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MarketRow:
    """A pool as it was last told; ``price_age_s`` is None where there is no price or no time."""

    offer: Offer
    price_age_s: float | None


@dataclass(frozen=True, slots=True)
class MarketView:
    """What the providers sell. ``silent`` says of each that does not answer why, by its name."""

    now: datetime
    rows: tuple[MarketRow, ...]
    provider_errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision with its place in the ledger."""

    seq: int
    decision: DecisionMade


@dataclass(frozen=True, slots=True)
class Health:
    """``alive``: the loop goes on. ``ready``: it also knows the market and can write its ledger.

    ``problems`` are sentences, empty where all is well. ``tick_age_s`` is by the wall.
    """

    alive: bool
    ready: bool
    problems: tuple[str, ...]
    last_tick_at: datetime | None
    tick_age_s: float | None
    leads: bool


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should hear of, numbered from 1.

    ``kind`` is "deadline", "budget", "interruptions", "nodes", "orphan", "halt", "backup", "tick"
    or "trouble". ``job`` is "" where none is meant.
    """

    seq: int
    at: datetime
    kind: str
    job: str
    message: str


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """What is measured of one job: totals since it was submitted. None is unknown.

    Of a ``closed`` job they change no more.
    """

    tenant: str
    summary: JobSummary
    deadline_slack_s: float | None
    is_failing: bool
    closed: bool

    @property
    def job(self) -> str:
        """The job's name."""
        return self.summary.job


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Everything that is measured, at one instant; counts are since this process began.

    ``launches`` and ``task_runs`` are by result and by (task, result). ``price_age_s`` is by
    provider. ``tick_buckets`` are (upper bound in seconds, ticks no longer than it), ascending.
    """

    now: datetime
    version: str
    mode: Mode
    halted: bool
    leads: bool
    jobs: tuple[JobMetrics, ...]
    launches: dict[str, int]
    price_age_s: dict[str, float]
    orphans: int
    tick_count: int
    tick_sum_s: float
    tick_buckets: tuple[tuple[float, int], ...]
    task_runs: dict[tuple[str, str], int]
    open_proposals: int
