"""What a job's gang is doing, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class GangState(StrEnum):
    """What the job's gang is doing, by its last report."""

    IDLE = "idle"
    STARTING = "starting"
    TRAINING = "training"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job. Work done but not saved is lost by an unannounced interruption.

    ``starting_until`` is when the present gang is expected to do new work (None: it does so now,
    or there is no gang). ``measured_units_per_s`` is the speed of the present gang where the
    nodes have reported one. ``lost_units`` counts all work that was done and lost so far.
    ``resumed_units`` is what the present gang began with, from any source; None where it
    does not report it. ``unreported``: the present gang's command was started and has reported no
    progress so far; what it does is unknown, and ``done_units`` is what was saved before.
    ``busy_nodes`` run tasks of an array. The command failed for good on ``failed_node``.
    """

    done_units: float = 0.0
    saved_units: float = 0.0
    state: GangState = GangState.IDLE
    generation: int = 0
    starting_until: datetime | None = None
    measured_units_per_s: float | None = None
    lost_units: float = 0.0
    resumed_units: float | None = None
    message: str = ""
    unreported: bool = False
    busy_nodes: frozenset[str] = frozenset()
    failed_node: str = ""
