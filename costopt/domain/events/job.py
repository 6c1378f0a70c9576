"""Events of a job: its run, decisions, training, checkpoints, data transfers, guards and operators.

``Event`` is the base of all events.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from costopt.domain.array import TaskOutcome
from costopt.domain.storage import KEPT_CHECKPOINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An immutable fact about a job. ``kind``, the name of its class, is what ledgers, the API and
    logs call it."""

    kind: ClassVar[str]

    at: datetime
    job: str

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A run of a job began. The baseline is the same job on the cheapest allowed on-demand
    capacity, at the speed that the job file declares; its ``baseline_startup_*`` are the start-up,
    which takes as long at any speed; None where it is unknown. ``deadline_at`` is None for a job
    without one. ``budget_usd_micros`` is what the
    job may cost from its start to its deadline, None without a budget.
    """

    work_units: float
    unit: str
    start_at: datetime
    deadline_at: datetime | None
    policy: str
    strategy: str
    tenant: str
    baseline_pool: str | None = None
    baseline_usd_micros: int | None = None
    baseline_wh: float | None = None
    baseline_gco2e: float | None = None
    baseline_startup_usd_micros: int | None = None
    baseline_startup_wh: float | None = None
    budget_usd_micros: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade(Event):
    """The strategy's decision from now on; recorded when it differs from the last.

    ``alternatives`` are (choice, value in dollars or None, note), as the strategy weighed them;
    recorded only where the run was asked to explain its decisions.
    """

    decision_id: str
    targets: tuple[tuple[str, int], ...]
    reason: str
    rule: str | None = None
    slack_s: float | None = None
    alternatives: tuple[tuple[str, float | None, str], ...] = ()

    def choice(self) -> str:
        """Return the decision in the form of an alternative."""
        return " + ".join(f"{nodes} × {pool}" for pool, nodes in self.targets) or "wait"

    def expected_usd(self) -> float | None:
        """Return the dollars to the end of the job that it expects; None where not recorded."""
        choice = self.choice()
        return next((usd for what, usd, _ in self.alternatives if what == choice), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMade(Event):
    """What a plan of jobs that share limits holds for this one, in hours from ``from_at`` on;
    recorded when it changes.

    ``usd_micros`` and ``wh`` are the job's own by hour, ``wh`` None where a node's power is
    unknown. ``prices`` are by limit, by hour: dollars that one more unit of it would save in an
    hour, of a budget per dollar or kWh.
    """

    from_at: datetime
    usd_micros: tuple[int, ...]
    wh: tuple[float | None, ...]
    prices: tuple[tuple[str, tuple[float, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(Event):
    """All the work is done and saved."""

    units: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Event):
    """The job's own command failed permanently, the last time on ``node_id``, "" if unknown."""

    message: str
    node_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopped(Event):
    """The controller stopped before the job was done; a later run resumes it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFormed(Event):
    """These nodes train together under this generation number; those of an array take tasks alone.

    ``checkpoint_interval_s`` is 0 for an array, which saves nothing but results.
    ``scaling_efficiency`` is the gang's speed over that of as many single nodes, 0–1; None where
    it is unknown.
    """

    generation: int
    node_ids: tuple[str, ...]
    checkpoint_interval_s: float
    scaling_efficiency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStarted(Event):
    """The gang does new work from ``at`` on, beginning at ``units``.

    ``units`` are None where its command reports no progress. ``at`` may lie before the end of a
    node that is recorded already: the node trained until then.
    """

    generation: int
    units: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStopped(Event):
    """The gang stopped training, having reached ``units``; None where they are unknown."""

    generation: int
    units: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReported(Event):
    """The progress of the job.

    ``speed_ratio`` is the measured speed of the gang over the one that the job file declares for
    it, under its power limits; None where none was measured, or none that is credible.
    """

    done_units: float
    saved_units: float
    units_per_s: float | None = None
    speed_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLost(Event):
    """Work done but not saved when the gang broke."""

    units: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded(Event):
    """A task of an array ended for good: "done", with its one result, or "failed".

    ``starts`` counts how often its command was started, ``took_s`` is how long the last one ran.
    ``parameters`` are the task's, ``figures`` the numbers of its result; ``message`` is why it
    failed.
    """

    task: int
    outcome: TaskOutcome
    starts: int
    node_id: str
    took_s: float | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    figures: tuple[tuple[str, float], ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteeChanged(Event):
    """The exactness of the job's weights from now on: what an undisturbed run computes, bit for bit
    ("exact"), or only nearly so ("close: " and everything that voided it)."""

    guarantee: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted(Event):
    """A checkpoint is durable.

    ``put_usd_micros`` is what the requests of the save cost, ``kept_usd_micros_per_month`` what
    keeping it costs in a month of 730 hours, at the list prices of ``region``, "provider/region";
    None where unknown. From then on the job keeps the ``keep`` newest and its milestones.
    """

    units: float
    uri: str
    size_bytes: int | None
    save_s: float | None
    put_usd_micros: int | None = None
    kept_usd_micros_per_month: int | None = None
    region: str | None = None
    keep: int = KEPT_CHECKPOINTS
    is_milestone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused(Event):
    """A checkpoint was found torn or corrupt, and skipped."""

    uri: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIntervalChanged(Event):
    """The interval at which trainers save from now on, with the reason."""

    interval_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMoved(Event):
    """The job's data or checkpoint go from one "provider/region" to another, at the list price.

    ``usd_micros`` is None where the price is unknown. ``why`` is "start", "save", or "cache" for
    what new nodes fetch to their disks.
    """

    from_region: str
    to_region: str
    gib: float
    usd_micros: int | None
    source: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardTripped(Event):
    """A guard stopped launches, or released the nodes of ``pool``."""

    guard: str
    message: str
    pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """The daemon observes, recommends or enforces from now on."""

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJumped(Event):
    """The wall clock of the daemon's machine was set by ``seconds``, back where they are negative.
    The times of events before and after it are that much apart from what passed between them."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesHalted(Event):
    """An operator stopped all launches, or changed the reason of the halt in force."""

    reason: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesAllowed(Event):
    """The halt of launches ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProposed(Event):
    """An action on nodes that the daemon proposes, and does not take unasked in this ``mode``.

    ``action`` is "launch", "drain" or "terminate"; a launch is of ``nodes`` and has no ``node_id``.
    The price is for one node, None where it is unknown or does not apply to the action.
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
    are unreachable, or its strategy fails, so that its decision stays as it is; or its gang is past
    the deadline and saves nothing."""

    source: str
    message: str
