"""A job as a round sees it: its gangs, and its work in seconds on the GPUs that it asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from costopt.domain.cluster import slice_sizes
from costopt.domain.job import Job, Phase
from costopt.domain.view import JobView, View
from costopt.optimize.rounds.gangs import Option
from costopt.strategies.priced.owned_nodes import OwnedNodes
from costopt.strategies.remaining_time import seconds_left

URGENT_S = 600.0
URGENT_SHARE = 0.1
"""A job with a deadline comes first once so much time, or this share of what it needs, is left over
at the size that it asked for."""


@dataclass(frozen=True, slots=True)
class ClusterGangs:
    """The gangs of a job on owned nodes, with their speed over that of the ``asked`` GPUs, which do
    ``units_per_s``."""

    options: tuple[Option, ...]
    asked: int
    units_per_s: float


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job of a round; ``submit_s`` counts from the first round. Where a GPU-hour costs more than
    ``spot_usd_per_gpu_hour`` it is not made smaller than it asked for."""

    name: str
    tenant: str
    gangs: ClusterGangs
    weight: float
    submit_s: float
    served_s: float
    remaining_s: float
    is_urgent: bool
    spot_usd_per_gpu_hour: float = math.inf


def cluster_gangs(job: Job, phase: Phase, nodes: OwnedNodes) -> ClusterGangs | None:
    """Return the gangs that the job may have here: slices, and whole nodes; None without any.

    They double and halve what it asks for; sizes whose speed was measured count, too.
    """
    speeds = {}
    for gpus in _sizes(job, nodes):
        speed = job.gpus_units_per_s(nodes.machine, gpus, phase)
        if speed is not None and speed.value > 0 and _is_allowed(job, gpus, nodes):
            speeds[gpus] = speed.value
    if not speeds:
        return None
    wished = job.resources.asked_gpus or job.resources.min_gpus or min(speeds)
    asked = max((gpus for gpus in speeds if gpus <= wished), default=min(speeds))
    options = tuple((gpus, speed / speeds[asked]) for gpus, speed in sorted(speeds.items()))
    return ClusterGangs(options, asked, speeds[asked])


def _sizes(job: Job, nodes: OwnedNodes) -> set[int]:
    asked = job.resources.asked_gpus or job.resources.min_gpus or 1
    sizes = {asked << power for power in range(21) if asked << power <= nodes.gpus}
    sizes |= {asked >> power for power in range(1, 21) if asked % (1 << power) == 0}
    sizes |= {point.gpus for point in job.throughput.points}
    whole = nodes.node_gpus * (job.resources.min_nodes or 1)
    sizes |= {whole << power for power in range(21) if whole << power <= nodes.gpus}
    parts = (*slice_sizes(nodes.node_gpus), nodes.node_gpus)
    return {s for s in sizes if s in parts or (s % nodes.node_gpus == 0 and s <= nodes.gpus)}


def _is_allowed(job: Job, gpus: int, nodes: OwnedNodes) -> bool:
    each = min(gpus, nodes.node_gpus)
    machine = replace(nodes.machine, name=nodes.machine_name(each), gpu_count=each)
    bare = replace(job.resources, instance_types=())
    reason = bare.rejection_reason(machine) or job.resources.name_reason(nodes.machine)
    return reason is None and gpus // each in job.resources.node_counts(machine)


def cluster_job(view: View, job_view: JobView, gangs: ClusterGangs, submit_s: float) -> ClusterJob:
    """Return the job's figures of this round."""
    job, done = job_view.job, job_view.progress.done_units
    per_s = gangs.units_per_s * job_view.speed_factor
    remaining_s = max(job.work.amount - done, 0.0) / per_s
    spare_s = seconds_left(view, job_view) - job.overhead_s - remaining_s
    is_urgent = job.deadline_at is not None and spare_s < max(URGENT_S, URGENT_SHARE * remaining_s)
    return ClusterJob(
        name=job.name,
        tenant=job.tenant,
        gangs=gangs,
        weight=job.usd_per_hour_waited,
        submit_s=submit_s,
        served_s=done / per_s,
        remaining_s=remaining_s,
        is_urgent=is_urgent,
    )
