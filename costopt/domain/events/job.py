"""Events of a job, its training, checkpoints, operators.

The part that every event has.

A job begins, is decided on, and ends.

Gangs, the work that they do, and the work that is lost with them.

Checkpoints, and the moves of data and checkpoints between regions.

What guards stop, what people tell the daemon, and what it may not do or cannot know.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An immutable fact about a job. ``kind`` is its name in ledgers, the API and logs."""

    kind: ClassVar[str]

    at: datetime
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A run of a job began. The baseline is the same job on the cheapest allowed on-demand, at the
    speed that the job file declares; ``baseline_startup_*`` of it is the start-up, which takes as
    long at any speed; None where it is unknown.
    """

    kind = "JobSubmitted"

    work_units: float
    unit: str
    start_at: datetime
    deadline_at: datetime
    policy: str
    strategy: str
    tenant: str
    baseline_pool: str | None = None
    baseline_usd_micros: int | None = None
    baseline_wh: float | None = None
    baseline_gco2e: float | None = None
    baseline_startup_usd_micros: int | None = None
    baseline_startup_wh: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade(Event):
    """What the strategy wanted from now on; recorded when it differs from the last.

    ``alternatives`` are (choice, value in dollars or None, note), as the strategy weighed them;
    recorded only where the run was asked to explain itself.
    """

    kind = "DecisionMade"

    decision_id: str
    targets: tuple[tuple[str, int], ...]
    reason: str
    rule: str | None = None
    slack_s: float | None = None
    alternatives: tuple[tuple[str, float | None, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(Event):
    """All the work is done and saved."""

    kind = "JobFinished"

    units: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Event):
    """The job's own command failed for good."""

    kind = "JobFailed"

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopped(Event):
    """The controller stopped before the job was done; a later run resumes it."""

    kind = "RunStopped"

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFormed(Event):
    """These nodes train together under this generation number."""

    kind = "GangFormed"

    generation: int
    node_ids: tuple[str, ...]
    checkpoint_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStarted(Event):
    """The gang does new work from ``at`` on, beginning at ``units``.

    ``units`` are None where its command reports no progress. ``at`` may lie before the end of a
    node that is recorded already: the node trained until then.
    """

    kind = "TrainingStarted"

    generation: int
    units: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStopped(Event):
    """The gang does no more work, having reached ``units``; None where they are unknown."""

    kind = "TrainingStopped"

    generation: int
    units: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReported(Event):
    """How far the job is.

    ``speed_ratio`` is the measured speed of the gang over the one that the job file declares for
    it, under its power limits; None where none was measured, or none that can be true.
    """

    kind = "ProgressReported"

    done_units: float
    saved_units: float
    units_per_s: float | None = None
    speed_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLost(Event):
    """Work done but not saved when the gang broke."""

    kind = "WorkLost"

    units: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteeChanged(Event):
    """From now on the job's weights are what an undisturbed run computes, bit for bit ("exact"), or
    only nearly so ("close: " and everything that voided it)."""

    kind = "GuaranteeChanged"

    guarantee: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted(Event):
    """A checkpoint is durable."""

    kind = "CheckpointCommitted"

    units: float
    uri: str
    size_bytes: int | None
    save_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused(Event):
    """A checkpoint was found torn or corrupt and passed over."""

    kind = "CheckpointRefused"

    uri: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIntervalChanged(Event):
    """From now on the trainers save this often, for this reason."""

    kind = "CheckpointIntervalChanged"

    interval_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMoved(Event):
    """The job's data or checkpoint go from one "provider/region" to another, at the list price.

    ``usd_micros`` is None where the price is unknown. ``why`` is "start" or "save".
    """

    kind = "DataMoved"

    from_region: str
    to_region: str
    gib: float
    usd_micros: int | None
    source: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardTripped(Event):
    """A guard stopped launches, or gave the nodes of ``pool`` back."""

    kind = "GuardTripped"

    guard: str
    message: str
    pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """From now on the daemon observes, recommends or enforces."""

    kind = "ModeChanged"

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesHalted(Event):
    """A person stopped all launches, or gave the halt that stands another reason."""

    kind = "LaunchesHalted"

    reason: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesAllowed(Event):
    """Launches are halted no more."""

    kind = "LaunchesAllowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProposed(Event):
    """What the daemon would do to nodes, and does not do by itself in this ``mode``.

    ``action`` is "launch", "drain" or "terminate"; a launch is of ``nodes`` and has no ``node_id``.
    The price is of one node, None where it is unknown or belongs to no action of this kind.
    """

    kind = "ActionProposed"

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
    cannot be heard or told, or its strategy fails, so that it keeps what it has."""

    kind = "SignalStale"

    source: str
    message: str
