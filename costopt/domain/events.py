"""The facts that the ledger records. ``at`` is when the fact was recorded; all times are UTC.

Money is integer micro-dollars, power watts. Cost, energy, progress and lost work are folds over
these events, so an event carries every figure that its fold needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costopt.domain.fleet import EndCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An immutable fact about a job."""

    at: datetime
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A run of a job began. The baseline is the same job on the cheapest allowed on-demand."""

    work_units: float
    unit: str
    start_at: datetime
    deadline_at: datetime
    policy: str
    strategy: str
    baseline_pool: str | None = None
    baseline_usd_micros: int | None = None
    baseline_wh: float | None = None
    baseline_gco2e: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade(Event):
    """What the strategy wanted from now on; recorded when it differs from the last.

    ``alternatives`` are (choice, value in dollars or None, note), as the strategy weighed them;
    recorded only where the run was asked to explain itself.
    """

    decision_id: str
    targets: tuple[tuple[str, int], ...]
    reason: str
    rule: str | None = None
    slack_s: float | None = None
    alternatives: tuple[tuple[str, float | None, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchIntended(Event):
    """Written before the provider is called; ``key`` makes the call idempotent."""

    key: str
    pool: str
    nodes: int
    planned_micros_per_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLaunched(Event):
    """The provider confirms a node. It is billed from ``launched_at``."""

    key: str
    node_id: str
    pool: str
    launched_at: datetime
    micros_per_hour: int
    idle_w: float
    busy_w: float
    pue: float
    gco2e_per_kwh: float | None
    energy_basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailed(Event):
    """The launch of ``key`` came to nothing; no node of it exists."""

    key: str
    pool: str
    error: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChanged(Event):
    """From ``at`` on, every node of ``pool`` that runs for the job costs this much."""

    pool: str
    micros_per_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFormed(Event):
    """These nodes train together under this generation number."""

    generation: int
    node_ids: tuple[str, ...]
    checkpoint_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStarted(Event):
    """The gang does new work from here on, beginning at ``units``."""

    generation: int
    units: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStopped(Event):
    """The gang does no more work, having reached ``units``."""

    generation: int
    units: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReported(Event):
    """How far the job is."""

    done_units: float
    saved_units: float
    units_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted(Event):
    """A checkpoint is durable."""

    units: float
    uri: str
    size_bytes: int | None
    save_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMoved(Event):
    """The job's data or checkpoint go from one "provider/region" to another, at the list price.

    ``usd_micros`` is None where the price is unknown. ``why`` is "start" or "save".
    """

    from_region: str
    to_region: str
    gib: float
    usd_micros: int | None
    source: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused(Event):
    """A checkpoint was found torn or corrupt and passed over."""

    uri: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitReported(Event):
    """What a node says of the power limit that its GPUs were asked to keep.

    ``cap_w`` is the limit of each GPU in force from ``at`` on, None where there is none; ``busy_w``
    what the whole node draws under it while it trains. ``message`` says how it came about. Where
    ``asked_w`` was asked for and there is no limit, the node could not set it.
    """

    node_id: str
    cap_w: float | None
    busy_w: float
    message: str
    asked_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMeasured(Event):
    """What a node has measured of itself from ``from_at`` until ``until_at``; unknown is None.

    A later event with the same ``from_at`` holds all that this one does. ``wh`` is what the node
    drew at its plug: what the meters of ``parts`` ("gpu", "cpu") read, the other parts as modelled,
    before PUE. ``busy_w`` is the mean at the plug while the trainer trained. ``gpu_utilization``,
    ``gpu_memory_share``, ``data_wait_share`` and ``goodput`` are shares of 0–1, ``step_s`` the mean
    time of a step in the job's time.
    """

    node_id: str
    from_at: datetime
    until_at: datetime
    wh: float | None = None
    parts: tuple[str, ...] = ()
    busy_w: float | None = None
    gpu_utilization: float | None = None
    gpu_memory_share: float | None = None
    step_s: float | None = None
    data_wait_share: float | None = None
    goodput: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIntervalChanged(Event):
    """From now on the trainers save this often, for this reason."""

    interval_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteeChanged(Event):
    """From now on the job's weights are what an undisturbed run computes, bit for bit ("exact"), or
    only nearly so ("close: " and everything that voided it)."""

    guarantee: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionExpected(Event):
    """The provider says that the node is likely to be taken, short of announcing it.

    ``message`` is "" once it says so no more.
    """

    node_id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLost(Event):
    """Work done but not saved when the gang broke."""

    units: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionNoticed(Event):
    """The provider announced that it takes the node."""

    node_id: str
    pool: str
    strikes_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainIntended(Event):
    """The node is asked to checkpoint; it is released when it has."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateIntended(Event):
    """Written before the provider is asked to release the node."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnded(Event):
    """The node is gone, and is billed until ``ended_at``.

    Where the cause is "lost", ``ended_at`` is a guess: an end that the provider tells later follows
    as another NodeEnded, which replaces this one.
    """

    node_id: str
    pool: str
    ended_at: datetime
    cause: EndCause


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReturned(Event):
    """The provider lists a lost node again: it never ended, and is billed as if it had not."""

    node_id: str
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBilled(Event):
    """What the provider charges for a node that has ended; replaces what was reckoned so far.

    ``prices`` are (from when, micro-dollars per hour), the first from the launch on. The node is
    charged for ``least_s`` seconds at least, at the last price.
    """

    node_id: str
    pool: str
    prices: tuple[tuple[datetime, int], ...]
    least_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardTripped(Event):
    """A guard stopped launches, or gave the nodes of ``pool`` back."""

    guard: str
    message: str
    pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """From now on the daemon observes, recommends or enforces."""

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesHalted(Event):
    """A person stopped all launches."""

    reason: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesAllowed(Event):
    """Launches are halted no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProposed(Event):
    """What the daemon would do to nodes, and does not do by itself in this ``mode``.

    ``action`` is "launch", "drain" or "terminate"; a launch is of ``nodes`` and has no ``node_id``.
    The price is of one node, None where it is unknown or belongs to no action of this kind.
    """

    proposal_id: str
    mode: str
    action: str
    pool: str
    nodes: int
    reason: str
    node_id: str | None = None
    micros_per_hour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalStale(Event):
    """A price or signal is missing or too old, so its offers are excluded; or a job's own nodes
    cannot be heard or told, so that it keeps what it has."""

    source: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(Event):
    """All the work is done and saved."""

    units: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Event):
    """The job's own command failed for good."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopped(Event):
    """The controller stopped before the job was done; a later run resumes it."""

    reason: str


EVENT_TYPES: tuple[type[Event], ...] = (
    JobSubmitted,
    DecisionMade,
    LaunchIntended,
    NodeLaunched,
    LaunchFailed,
    PriceChanged,
    GangFormed,
    TrainingStarted,
    TrainingStopped,
    ProgressReported,
    CheckpointCommitted,
    DataMoved,
    CheckpointRefused,
    PowerLimitReported,
    NodeMeasured,
    CheckpointIntervalChanged,
    GuaranteeChanged,
    InterruptionExpected,
    WorkLost,
    InterruptionNoticed,
    DrainIntended,
    TerminateIntended,
    NodeEnded,
    NodeReturned,
    NodeBilled,
    GuardTripped,
    ModeChanged,
    LaunchesHalted,
    LaunchesAllowed,
    ActionProposed,
    SignalStale,
    JobFinished,
    JobFailed,
    RunStopped,
)
