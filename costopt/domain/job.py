"""The job: its work, phases, resources, throughput, budget and deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from costopt.domain.array import TaskArray
from costopt.domain.cached_data import GIGABITS_PER_GIB, CachedData
from costopt.domain.estimate import Estimate
from costopt.domain.gang_sizes import ladder
from costopt.domain.market import InstanceType
from costopt.domain.model_card import DerivedFigure, GpuMemory
from costopt.domain.secret import Secret
from costopt.domain.storage import COMMIT_S, COPY_GBPS, KEPT_CHECKPOINTS, STORE_GBPS
from costopt.domain.throughput import Throughput


class WorkUnit(StrEnum):
    """The unit in which the work is counted."""

    STEPS = "steps"
    SAMPLES = "samples"
    TOKENS = "tokens"
    TASKS = "tasks"
    EPOCHS = "epochs"
    PERCENT = "percent"


@dataclass(frozen=True, slots=True)
class WorkAmount:
    """The amount of work."""

    amount: float
    unit: WorkUnit


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the work with its own demand; phases run in order, shares sum to 1.

    ``may_pause`` False: once begun, the phase may not wait for capacity. ``throughput`` is the
    phase's own speed, None where it is the job's. After every ``evaluate_every`` units the training
    pauses for ``evaluation_s`` seconds to evaluate, on the gang that it holds.
    """

    name: str
    share: float
    min_nodes: int
    max_nodes: int
    may_pause: bool = True
    throughput: Throughput | None = None
    evaluate_every: float | None = None
    evaluation_s: float = 0.0

    def with_evaluations(self, units_per_s: float) -> float:
        """Return the mean speed of a gang that does ``units_per_s`` between its evaluations."""
        if self.evaluate_every is None:
            return units_per_s
        return units_per_s / (1 + units_per_s * self.evaluation_s / self.evaluate_every)


@dataclass(frozen=True, slots=True)
class Resources:
    """Which machines may run the job. Empty tuples allow everything.

    A node's GPUs must be a multiple of ``gpu_multiple``. GPUs beyond ``useful_gpus`` in total would
    be idle, None: no such bound. Gangs that cannot hold ``memory``, which the model takes, are left
    out. A gang is whole groups of ``gpus_per_group`` GPUs, each of which holds the state, None: one
    group of any size. ``asked_gpus`` is what the job asks for of a shared cluster. A unit of work
    sends ``zone_traffic_gib`` between zones if its gang is in several, None: it is in one.
    """

    gpu_models: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    min_nodes: int = 1
    max_nodes: int = 1
    min_gpus: int | None = None
    max_gpus: int | None = None
    min_gpu_memory_gib: float | None = None
    min_memory_gib: float | None = None
    gpu_multiple: int = 1
    useful_gpus: int | None = None
    memory: GpuMemory | None = None
    gpus_per_group: int | None = None
    asked_gpus: int | None = None
    zone_traffic_gib: float | None = None

    def name_reason(self, machine: InstanceType) -> str | None:
        """Return why the names that the job allows exclude ``machine``, or None."""
        if self.instance_types and machine.name not in self.instance_types:
            return "instance type not among those the job allows"
        if self.gpu_models and not any(machine.gpu.matches_name(m) for m in self.gpu_models):
            return f"GPU {machine.gpu.model} not among those the job allows"
        return None

    def rejection_reason(self, machine: InstanceType) -> str | None:
        """Return why ``machine`` may not run the job, or None where it may."""
        reason = self.name_reason(machine)
        if reason is not None:
            return reason
        if self.min_gpu_memory_gib and machine.gpu.memory_gib < self.min_gpu_memory_gib:
            return (
                f"{machine.gpu.memory_gib:g} GiB per GPU, the job needs {self.min_gpu_memory_gib:g}"
            )
        if self.min_memory_gib and machine.memory_gib < self.min_memory_gib:
            return f"{machine.memory_gib:g} GiB of memory, the job needs {self.min_memory_gib:g}"
        if machine.gpu_count % self.gpu_multiple:
            return f"{machine.gpu_count} GPUs per node cannot be shared by {self.gpu_multiple}"
        allowed = self._allowed_nodes(machine)
        if not allowed:
            return (
                f"{machine.gpu_count} GPUs per node do not fit a gang of {self.min_nodes} to "
                f"{self.max_nodes} nodes with {self.min_gpus or 1} to {self.max_gpus or '∞'} GPUs"
            )
        if self.node_counts(machine):
            return None
        return self._memory_reason(machine, allowed[-1]) or self._group_reason(machine)

    def node_counts(self, machine: InstanceType) -> range:
        """Return all gang sizes allowed that hold the model; see ``Job.gang_sizes``."""
        allowed, step = self._allowed_nodes(machine), self.nodes_per_group(machine)
        if not allowed or step is None:
            return range(0)
        fewest = allowed[0]
        if self.memory is not None:
            gpus = self.memory.min_gpus(machine.gpu.memory_gib)
            if gpus is None or gpus > (self.gpus_per_group or gpus):
                return range(0)
            if self.gpus_per_group is None:
                fewest = max(fewest, math.ceil(gpus / machine.gpu_count))
        return range(math.ceil(fewest / step) * step, allowed[-1] + 1, step)

    def nodes_per_group(self, machine: InstanceType) -> int | None:
        """Return the nodes that stop when one of them is lost: those of a shard group, at least 1.

        None where nodes and groups do not divide each other.
        """
        group, gpus = self.gpus_per_group, machine.gpu_count
        if group is None or gpus % group == 0:
            return 1
        return None if group % gpus else group // gpus

    def _group_reason(self, machine: InstanceType) -> str:
        """Return why no number of nodes that the job allows is a number of whole shard groups."""
        step = self.nodes_per_group(machine)
        if step is None:
            return (
                f"{machine.gpu_count} GPUs per node and shard groups of {self.gpus_per_group} GPUs "
                "do not divide each other"
            )
        return (
            f"no gang of {self.min_nodes} to {self.max_nodes} nodes is a multiple of the {step} "
            "nodes of a shard group"
        )

    def _memory_reason(self, machine: InstanceType, nodes: int) -> str | None:
        """Return why not even ``nodes`` of ``machine`` hold the model, or None."""
        if self.memory is None:
            return None
        gib = machine.gpu.memory_gib
        fewest = self.memory.min_gpus(gib)
        takes = (
            f"the model takes {self.memory.gang_gib.value:,.0f} GiB over the "
            f"{'gang' if self.gpus_per_group is None else 'shard group'} and "
            f"{self.memory.gpu_gib.value:,.1f} GiB on each GPU"
        )
        if fewest is None:
            return f"{takes}, more than a GPU of {gib:g} GiB holds"
        allowed, whose = nodes * machine.gpu_count, "the job allows"
        if self.gpus_per_group is not None:
            allowed, whose = self.gpus_per_group, "a shard group has"
        if fewest <= allowed:
            return None
        return f"{takes}: at least {fewest} GPUs of {gib:g} GiB, {whose} {allowed}"

    def _allowed_nodes(self, machine: InstanceType) -> range:
        gpus = machine.gpu_count
        if gpus < 1:
            return range(0)
        fewest = max(self.min_nodes, math.ceil((self.min_gpus or 1) / gpus))
        most = (
            self.max_nodes if self.max_gpus is None else min(self.max_nodes, self.max_gpus // gpus)
        )
        if self.useful_gpus is not None:
            most = min(most, math.ceil(self.useful_gpus / gpus))
        return range(fewest, most + 1)


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """Where and how the job saves. If ``interval_s`` is None, it is derived from the hazard.

    ``region`` is "provider/region" of the store, None: unknown. A save stops the training for
    ``save_s`` and is durable ``persist_s`` after it began, None: when training goes on. With
    ``auto_save`` and ``auto_restore`` these and ``restore_s`` are those of the slowest gang, ``on``
    returns another's; each node then exchanges its share of the state with the store, at ``gbps``,
    None: ``STORE_GBPS``, and no faster than its network. The ``keep`` newest checkpoints are kept
    and multiples of ``keep_every`` units, None: none. ``across_zones``: snapshots leave their zone.
    """

    uri: str
    size_gib: float = 0.0
    save_s: float = 30.0
    restore_s: float = 60.0
    interval_s: float | None = None
    region: str | None = None
    persist_s: float | None = None
    auto_save: bool = False
    auto_restore: bool = False
    gbps: float | None = None
    keep: int = KEPT_CHECKPOINTS
    keep_every: float | None = None
    across_zones: bool = False

    @property
    def durable_s(self) -> float:
        """Return the seconds from the begin of a save until it is durable."""
        return self.save_s if self.persist_s is None else self.persist_s

    def on(self, machine: InstanceType, nodes: int) -> CheckpointSpec:
        """Return the spec with the times of a gang of ``nodes``; itself where they are stated."""
        if not (self.auto_save or self.auto_restore):
            return self
        gbit_per_node = self.size_gib * GIGABITS_PER_GIB / nodes
        limits = (machine.network_gbps, STORE_GBPS if self.gbps is None else self.gbps)
        stored_s = COMMIT_S + gbit_per_node / min(gbps for gbps in limits if gbps)
        found = self
        if self.auto_save:
            copy_s = gbit_per_node / (COPY_GBPS * max(1, machine.gpu_count))
            found = replace(found, save_s=copy_s, persist_s=stored_s)
        return replace(found, restore_s=stored_s) if self.auto_restore else found


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum cost of the job; None does not limit.

    At a total or monthly (UTC) maximum the job stops; an hourly one stops launches beyond it.
    """

    max_usd: float | None = None
    max_kwh: float | None = None
    max_usd_per_month: float | None = None
    max_usd_per_hour: float | None = None

    def max_usd_between(self, begin_at: datetime, end_at: datetime) -> float | None:
        """Return the maximum dollars between two times, by the total and by the calendar months
        (UTC), of which each that is touched counts whole; None: unlimited."""
        begin, end = begin_at.astimezone(UTC), max(begin_at, end_at).astimezone(UTC)
        months = 12 * (end.year - begin.year) + end.month - begin.month + 1
        monthly = self.max_usd_per_month
        caps = (self.max_usd, None if monthly is None else months * monthly)
        return min((cap for cap in caps if cap is not None), default=None)


@dataclass(frozen=True, slots=True)
class DataLocation:
    """Where the training data is: ``region`` is "provider/region", None where it is unknown."""

    uri: str
    size_gib: float = 0.0
    region: str | None = None


USD_PER_HOUR_WAITED = 1.0
"""What an hour until the end of a job is worth that says nothing else; times its priority."""
OPEN_ENDED = timedelta(days=90)


@dataclass(frozen=True, slots=True, repr=False)
class Job:
    """A training job. ``startup_s`` is from a node's launch until its trainer can restore.

    The trainers of an ``elastic`` job form their gang again without a restart of their processes
    when a node joins or leaves. The work of a job with an ``array`` is its tasks. Each new node
    fetches the ``cache``. The command runs in the container ``image``, None for the node itself,
    after the shell commands ``setup``. ``derived`` are the figures that the file leaves open,
    ``time_notes`` say how its times were read. Without a deadline it waits for capacity as long as
    that pays: an hour until its end is worth ``usd_per_hour_waited``. ``max_failures`` of the
    command at one point end it; the node of the last one lives on for ``keep_failed_s``.
    """

    name: str
    work: WorkAmount
    start_at: datetime
    deadline_at: datetime | None
    resources: Resources
    throughput: Throughput
    checkpoint: CheckpointSpec
    phases: tuple[Phase, ...]
    run: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = "."
    budget: Budget = Budget()
    data: DataLocation | None = None
    startup_s: float = 120.0
    tenant: str = "default"
    elastic: bool = False
    array: TaskArray | None = None
    cache: tuple[CachedData, ...] = ()
    image: str | None = None
    setup: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    derived: tuple[DerivedFigure, ...] = ()
    time_notes: tuple[str, ...] = ()
    usd_per_hour_waited: float = USD_PER_HOUR_WAITED
    max_failures: int = 3
    keep_failed_s: float = 0.0

    def __post_init__(self) -> None:
        for at in (self.start_at, self.deadline_at):
            if at is not None and at.tzinfo is None:
                raise ValueError(f"job {self.name!r}: {at} must be an aware time")

    def __repr__(self) -> str:
        due = (
            "no deadline" if self.deadline_at is None else f"due {self.deadline_at:%Y-%m-%d %H:%MZ}"
        )
        return f"Job({self.name!r}, {self.work.amount:,.10g} {self.work.unit}, {due})"

    @property
    def until_at(self) -> datetime:
        """Return the deadline; of a job without one, how far plans for it look at most."""
        return self.start_at + OPEN_ENDED if self.deadline_at is None else self.deadline_at

    @property
    def overhead_s(self) -> float:
        """Return the seconds from a launch until the gang does new work: start-up, cache, restore.

        The cache as fetched on a fast network; a slow one takes ``slow_cache_s`` longer.
        """
        return self.startup_s + self.cache_s() + self.checkpoint.restore_s

    def on_gang(self, machine: InstanceType, nodes: int) -> Job:
        """Return the job with the times of its saves and restores on a gang of ``nodes``."""
        checkpoint = self.checkpoint.on(machine, nodes)
        return self if checkpoint is self.checkpoint else replace(self, checkpoint=checkpoint)

    def goes_on_without(self, machine: InstanceType) -> bool:
        """Return whether the trainers of other nodes go on without a restart when one is lost: not
        where a shard group spans several nodes.
        """
        return self.elastic and self.resources.nodes_per_group(machine) == 1

    def groups_in(self, machine: InstanceType, nodes: int) -> int:
        """Return the parts of a gang of which a lost node stops one: shard groups; else 1."""
        is_grouped = self.resources.gpus_per_group is not None
        return nodes if is_grouped and self.goes_on_without(machine) else 1

    def cache_s(self, machine: InstanceType | None = None) -> float:
        """Return the seconds in which a new node fetches the cache; None: on a fast network."""
        network_gbps = None if machine is None else machine.network_gbps
        return math.fsum(item.fetch_s(network_gbps) for item in self.cache)

    def slow_cache_s(self, machine: InstanceType) -> float:
        """Return the seconds that the machine's network adds to the cache of ``overhead_s``."""
        return max(0.0, self.cache_s(machine) - self.cache_s())

    def phase_at(self, done_units: float) -> Phase:
        """Return the phase that the next unit of work belongs to."""
        bound = 0.0
        for phase in self.phases:
            bound += phase.share * self.work.amount
            if done_units < bound - 1e-9 * self.work.amount:
                return phase
        return self.phases[-1]

    def gang_sizes(self, machine: InstanceType, also: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the gang sizes of ``machine`` that are worth comparing, ascending.

        All of the job's where these are few, else a ladder (see ``ladder``) with the ends of each
        phase, the sizes whose speed was measured, and those of ``also`` that the job allows.
        """
        bounds = (n for phase in self.phases for n in (phase.min_nodes, phase.max_nodes))
        throughputs = (self.throughput, *(p.throughput for p in self.phases if p.throughput))
        measured = (
            point.gpus // machine.gpu_count
            for throughput in throughputs
            for point in throughput.points
            if machine.gpu.matches_name(point.gpu_model) and point.gpus % machine.gpu_count == 0
        )
        return ladder(self.resources.node_counts(machine), (*bounds, *measured, *also))

    def gang_units_per_s(
        self, machine: InstanceType, nodes: int, phase: Phase | None = None
    ) -> Estimate | None:
        """Return the speed of a gang of ``nodes`` nodes; in a phase, with its evaluation pauses."""
        return self.gpus_units_per_s(machine, machine.gpu_count * nodes, phase)

    def gpus_units_per_s(
        self, machine: InstanceType, gpus: int, phase: Phase | None = None
    ) -> Estimate | None:
        """Return the speed as ``gang_units_per_s``, for a gang with ``gpus`` in total."""
        own = None if phase is None else phase.throughput
        speed = (own or self.throughput).units_per_s(machine, gpus)
        if speed is None or phase is None or phase.evaluate_every is None:
            return speed
        return replace(
            speed,
            value=phase.with_evaluations(speed.value),
            low=phase.with_evaluations(speed.low),
            high=phase.with_evaluations(speed.high),
        )

    def scaling_efficiency(self, machine: InstanceType, nodes: int) -> float | None:
        """Return the strong-scaling efficiency, in (0, 1], of a gang; None where it is unknown."""
        if nodes == 1 or self.array is not None:
            return 1.0
        for throughput in (self.throughput, *(phase.throughput for phase in self.phases)):
            one = throughput and throughput.units_per_s(machine, machine.gpu_count)
            gang = throughput and throughput.units_per_s(machine, machine.gpu_count * nodes)
            if one and gang and one.value > 0 and gang.value > 0:
                return min(1.0, gang.value / (nodes * one.value))
        return None
