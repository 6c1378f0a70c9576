"""A job as it was handed to the daemon, and what its owner wants of it now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class DesiredState(StrEnum):
    """What is wanted of a job; a paused one keeps its checkpoint and no nodes, as a cancelled one.

    A job that is cancelled is never run again.
    """

    RUN = "run"
    PAUSED = "paused"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Submission:
    """A job and the policy that it follows, as YAML texts.

    ``submitted_at`` is the daemon's clock, from which the job's relative times count. Relative
    paths of the job count from ``workdir``. Of two jobs that both wait, the one with the higher
    ``priority`` is served first, and may take the room of one with a lower.
    """

    name: str
    tenant: str
    priority: int
    job_document: str
    policy_document: str
    workdir: str
    submitted_at: datetime
    submitted_by: str
    desired_state: DesiredState = DesiredState.RUN
