"""What an agent says of its node, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from costopt.agent.meter.reading import NodeMeasurement


class NodeActivity(StrEnum):
    """What a node's agent is doing.

    STOPPED: the trainer saved and left, on a notice or a drain to any member. BROKEN: the trainer
    died because a member did. FAILED: it died by itself, with every member alive. GONE: the agent
    ended in good order.
    """

    IDLE = "idle"
    STARTING = "starting"
    TRAINING = "training"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    BROKEN = "broken"
    FAILED = "failed"
    GONE = "gone"

    @property
    def is_training(self) -> bool:
        """Whether a trainer runs on the node."""
        return self in (NodeActivity.STARTING, NodeActivity.TRAINING, NodeActivity.STOPPING)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """``at`` is wall time on the node, POSIX seconds; ``units_per_s`` is against the wall.

    ``beat`` grows with each one, so that a reader whose clock differs can tell a living node
    from a dead one. ``reported`` is False while the trainer has told nothing of itself: units are
    then unknown. ``meters`` is what the node has measured since the agent began, ``warning`` what
    the provider says short of a notice, ``strikes_at`` when it takes the node (wall time), None
    while it has given no notice. ``interval_s`` (in the job's time) is how often the trainer
    saves and ``interval_reason`` why. ``restarts`` counts trainers that were started again within
    this generation. ``power_message`` says what became of the power limit that the gang asks for,
    "" where it asks for none; ``power_asked_w`` is what it asks for, ``power_cap_w`` what each GPU
    is limited to for it. ``snapshots`` is the "host:port" at which the gang's members give this
    node snapshots, "" where it takes none. ``resumed_units`` is what the trainer had when it became
    part of this generation, None before. ``started``: the command was started in it. The other
    figures are the trainer's, as in ``TrainerStatus``.
    """

    node_id: str
    generation: int
    state: NodeActivity
    at: float
    beat: int
    reported: bool = False
    done_units: float = 0.0
    saved_units: float = 0.0
    units_per_s: float | None = None
    exit_code: int | None = None
    message: str = ""
    log_path: str = ""
    guarantee: str = ""
    notice: bool = False
    meters: NodeMeasurement | None = None
    warning: str = ""
    strikes_at: float | None = None
    interval_s: float | None = None
    interval_reason: str = ""
    upload_bytes_per_s: float | None = None
    step_s: float | None = None
    data_wait_share: float | None = None
    goodput: float | None = None
    restarts: int = 0
    power_asked_w: float | None = None
    power_cap_w: float | None = None
    power_message: str = ""
    snapshots: str = ""
    resumed_units: float | None = None
    started: bool = False


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """The job's command failed by itself in one generation, ``saved_units`` into the work."""

    node_id: str
    generation: int
    exit_code: int
    at: float
    saved_units: float
    message: str
    log_path: str
