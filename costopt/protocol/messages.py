"""The messages between controller and agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from costopt.checkpoint.identity import JobIdentity
from costopt.checkpoint.replicas.wire import GangKey
from costopt.domain.gpu_health import GpuHealth
from costopt.protocol.trainer_files import TrainerFigures


class NodeActivity(StrEnum):
    """What a node's agent is doing.

    STOPPED: the trainer saved and left, on a notice or a drain to any member. BROKEN: the trainer
    died because a member did. FAILED: it died with every member alive, so the command is at fault.
    GONE: the agent ended in good order.
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
class Heartbeat(TrainerFigures):
    """A node's report of itself; ``at`` is wall time on the node, POSIX seconds.

    ``beat`` grows with each heartbeat, so that a reader whose
    clock differs can tell a living node from a dead one. ``reported`` is False until the trainer
    has reported a status: units are unknown before. ``meters`` is what the node has measured since
    the agent began, ``warning`` what the provider announces short of a notice, ``interrupts_at``
    when the provider interrupts the node (wall time), None while there is no notice. ``restarts``
    counts trainers that were restarted within this generation. ``power_message`` is the result of
    the power limit that the gang requests, "" if it requests none; ``power_asked_w`` is the
    requested limit, ``power_cap_w`` what each GPU is limited to for it. ``probe`` is the newest
    probe of a power limit in this generation that is over, None before. ``snapshots`` is the
    "host:port" at which this node accepts snapshots from the gang's members, "" if it accepts none.
    ``resumed_units`` is the work that the trainer had when it joined this generation, None before.
    ``started``: the command was started in it. ``gpu_health`` is None where the GPUs' health is not
    read. ``cache`` is what the node took to fetch the job's cache, None before that is done.
    ``upload_bytes_per_s`` is how fast the node last made a checkpoint durable.
    """

    node_id: str
    generation: int
    state: NodeActivity
    at: float
    beat: int
    reported: bool = False
    exit_code: int | None = None
    message: str = ""
    log_path: str = ""
    notice: bool = False
    meters: NodeMeasurement | None = None
    warning: str = ""
    interrupts_at: float | None = None
    upload_bytes_per_s: float | None = None
    restarts: int = 0
    power_asked_w: float | None = None
    power_cap_w: float | None = None
    power_message: str = ""
    probe: PowerProbeReport | None = None
    snapshots: str = ""
    resumed_units: float | None = None
    started: bool = False
    gpu_health: GpuHealth | None = None
    cache: CacheReport | None = None


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """The job's command itself failed in one generation, ``saved_units`` into the work.

    ``done_units`` is what it had done, saved or not, None where it reports no progress; ``ran_s``
    how long it ran by the wall, None where it never started or that is unknown.
    """

    node_id: str
    generation: int
    exit_code: int
    at: float
    saved_units: float
    message: str
    log_path: str
    done_units: float | None = None
    ran_s: float | None = None


@dataclass(frozen=True, slots=True)
class PowerProbeReport:
    """What a node measured in probe ``number`` of the gang's ``generation``.

    The gang did ``units`` of work in ``seconds`` of wall time; the meters of ``parts`` read
    ``metered_w`` on average, over ``gpus`` GPUs. Each was limited to ``cap_w``, None without;
    ``min_w`` is the lowest limit that all of them allow, ``limit_w`` the lowest in force before.
    Where ``message`` is not empty, nothing was measured.
    """

    generation: int
    number: int
    cap_w: float | None = None
    units: float = 0.0
    seconds: float = 0.0
    metered_w: float = 0.0
    parts: tuple[str, ...] = ()
    gpus: int = 0
    min_w: float = 0.0
    limit_w: float = 0.0
    message: str = ""


SecretName = tuple[str, str, str, bool]
"""A variable, the source of its value, its name there, and whether the trainer gets a file."""


@dataclass(frozen=True, slots=True)
class CacheReport:
    """Bytes of the job's cache that a node fetched in so many seconds of wall time, beside those
    that it had."""

    fetched_bytes: int
    held_bytes: int
    seconds: float


CacheSource = tuple[str, str, str, bool]
"""Address of cached data, path or name on the node, SHA-256 of their index or "", and whether the
node's image has them."""


@dataclass(frozen=True, slots=True)
class Gang:
    """One generation of a job's gang. ``members`` are node ids by rank.

    The generation is a fencing token: reports of another generation are not believed.
    ``checkpoint_interval_s`` and ``hazard_per_hour`` (interruptions of the gang) are in the job's
    time, which runs ``speed`` times faster than the wall; ``formed_at`` is wall time in POSIX
    seconds. ``hazard_per_hour`` None means: leave the interval as it is; ``save_paid_s`` is for how
    long the gang could train for the dollars of a save. ``power_cap_w`` is the limit of each GPU,
    None for none; it may change within a generation. So may ``probe``: each node measures once, for
    ``probe_s`` seconds of wall time, what it does under the limit ``probe_cap_w``, None for none,
    and removes it; 0 asks for nothing. ``data_uri`` is the address of the job's data, None if it is
    not given; ``cache`` is what else has to be on each node's disk before it trains. The trainers
    of an ``elastic`` gang form the next one among themselves when a member joins or leaves; those
    of a node hold a copy of the model together, in a world of their own, where it ``is_sharded``.
    ``secret`` is new in each generation: with it the members authenticate each other to exchange
    snapshots, which requires it, and to form gangs. ``zones`` are the members' zones by rank, empty
    if unknown; snapshots go to members in other zones only ``across_zones``. ``former`` are nodes
    of the previous gang that may still be saving the state from which this one resumes, if none of
    them is a member. ``task_slots`` are how many tasks of an array each member runs at once, by
    rank; empty if the job is not an array. Each has ``task_gpus`` GPUs, takes about ``task_s`` of
    the wall, is killed after ``task_timeout_s`` of it, and has ``task_retries`` when it fails. The
    command runs in the container ``image``, None for the node itself, after the shell commands
    ``setup``; ``secrets`` has a row for each source of each. ``owner`` and ``tenant`` are the
    job's, "" if unknown.
    """

    job: str
    generation: int
    members: tuple[str, ...]
    command: tuple[str, ...]
    workdir: str
    formed_at: float
    env: tuple[tuple[str, str], ...] = ()
    total_units: float | None = None
    checkpoint_uri: str | None = None
    checkpoint_interval_s: float | None = None
    hazard_per_hour: float | None = None
    save_paid_s: float = 0.0
    noticed_share: float = 0.0
    speed: float = 1.0
    power_cap_w: float | None = None
    probe: int = 0
    probe_cap_w: float | None = None
    probe_s: float = 0.0
    data_uri: str | None = None
    elastic: bool = False
    is_sharded: bool = False
    zones: tuple[str, ...] = ()
    across_zones: bool = False
    former: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)
    task_slots: tuple[int, ...] = ()
    task_gpus: int = 1
    task_retries: int = 0
    task_s: float | None = None
    task_timeout_s: float | None = None
    cache: tuple[CacheSource, ...] = ()
    image: str | None = None
    setup: tuple[str, ...] = ()
    secrets: tuple[SecretName, ...] = ()
    owner: str = ""
    tenant: str = ""

    @property
    def identity(self) -> JobIdentity | None:
        """Return the job as its checkpoints name it; None if its owner is unknown."""
        return JobIdentity(self.owner, self.tenant, self.job) if self.owner else None

    @property
    def key(self) -> GangKey | None:
        """Return the key by which members authenticate each other; None without a secret."""
        return GangKey(self.job, self.generation, self.secret) if self.secret else None

    def rank(self, node_id: str) -> int | None:
        """Return the node's rank, or None if it is not a member."""
        return self.members.index(node_id) if node_id in self.members else None

    def zone(self, node_id: str) -> str:
        """Return the node's zone, "" if it is unknown."""
        rank = self.rank(node_id)
        return self.zones[rank] if rank is not None and rank < len(self.zones) else ""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the gang of one generation meets.

    Rank 0's agent chooses it: only the node itself knows its address and a free port.
    """

    generation: int
    host: str
    port: int


GPU = "gpu"
CPU = "cpu"
NODE = "node"


@dataclass(frozen=True, slots=True)
class NodeMeasurement:
    """Totals from ``since`` to ``at``, wall times in POSIX seconds. Unknown is None.

    ``energy_wh`` is what the meters of ``parts`` read: "gpu" (GPU boards) and "cpu" (packages and
    their memory), which leave out fans, power supplies and the rest of the node, or "node" alone,
    all that the node draws at its plug. ``gpus`` is how many GPUs were read. ``training_wh`` and
    ``training_s`` cover the time in which the trainer trained. ``gpu_utilization`` is a share of
    0–1 and the mean over GPUs, ``gpu_memory_share`` the fullest GPU's: both are the newest figures.
    """

    since: float
    at: float
    energy_wh: float | None = None
    parts: tuple[str, ...] = ()
    gpus: int = 0
    training_wh: float = 0.0
    training_s: float = 0.0
    gpu_utilization: float | None = None
    gpu_memory_share: float | None = None
