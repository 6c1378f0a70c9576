"""A job begins, is decided on, and ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costopt.domain.events.event import Event


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
