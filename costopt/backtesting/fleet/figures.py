"""The figures of a schedule: completion times, waits, GPUs, restarts, tenants, dollars, kWh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costopt.backtesting.fleet.replay import FleetSchedule
from costopt.domain.cluster import Cluster
from costopt.workload.workload import Workload

LATER_BY = 0.1
COMPLETED = frozenset(("completed", "pass", "passed", "success", "succeeded"))
"""States of jobs that completed, in the records of Slurm, Helios, Acme, Philly and Kubernetes."""
CURVE_POINTS = 240


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """Figures of all jobs under one policy, in seconds from submission to end where not said.

    ``wait_s`` is the mean time to a job's first start; ``allocated_share`` the held part of the
    GPUs while jobs were submitted. ``tenant_ratios`` are mean completion times over those in the
    tenants' own partitions; ``later_share`` are the jobs that end more than a tenth later than
    there. ``completed_ratio`` is ``static_ratio`` of the jobs that the record says completed, None
    where it says so of none. ``busy`` holds hours since the start with the GPUs held;
    ``completion_s`` are quantiles in equal steps from the least to the greatest.
    """

    policy: str
    gpus: int
    jobs: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    wait_s: float
    static_ratio: float
    completed_jobs: int
    completed_ratio: float | None
    allocated_share: float
    gpu_hours: float
    restarts_per_job: float
    worst_tenant: str
    worst_tenant_ratio: float
    later_share: float
    usd: float
    kwh: float | None
    tenant_ratios: Mapping[str, float]
    switched_off: tuple[str, ...]
    busy: tuple[tuple[float, float], ...]
    completion_s: tuple[float, ...]


def measure(
    policy: str, schedule: FleetSchedule, static: FleetSchedule, workload: Workload,
    cluster: Cluster, gpus: int, days: float,
) -> PolicyFigures:  # fmt: skip
    """Return the figures of a schedule on so many GPUs, with those of ``static`` beside it."""
    taken_s = schedule.end_s - workload.submit_s
    static_s = static.end_s - workload.submit_s
    ratios = {
        name: float(taken_s[own].mean() / static_s[own].mean())
        for index, name in enumerate(workload.tenants)
        if (own := workload.tenant == index).any()
    }
    completed = np.array([job.state.lower() in COMPLETED for job in workload.jobs], dtype=np.bool_)
    worst = max(ratios, key=lambda name: (ratios[name], name))
    span_h = days * 24
    busy = _busy_by_step(schedule, span_h)
    held_share = float(np.mean([each for _, each in busy])) / gpus
    gpu_hours = float(schedule.gpu_s.sum() / 3600)
    p50, p95, p99 = np.percentile(taken_s, (50, 95, 99))
    return PolicyFigures(
        policy=policy,
        gpus=gpus,
        jobs=len(taken_s),
        mean_s=float(taken_s.mean()),
        p50_s=float(p50),
        p95_s=float(p95),
        p99_s=float(p99),
        wait_s=float((schedule.first_run_s - workload.submit_s).mean()),
        static_ratio=float(taken_s.mean() / static_s.mean()),
        completed_jobs=int(completed.sum()),
        completed_ratio=float(taken_s[completed].mean() / static_s[completed].mean())
        if completed.any()
        else None,
        allocated_share=held_share,
        gpu_hours=gpu_hours,
        restarts_per_job=float(schedule.restarts.mean()),
        worst_tenant=worst,
        worst_tenant_ratio=ratios[worst],
        later_share=float((taken_s > (1 + LATER_BY) * static_s).mean()),
        usd=gpu_hours * cluster.usd_per_gpu_hour,
        kwh=cluster.kwh(gpu_hours, (1 - held_share) * gpus * span_h),
        tenant_ratios=ratios,
        switched_off=schedule.switched_off,
        busy=busy,
        completion_s=tuple(np.quantile(taken_s, np.linspace(0, 1, CURVE_POINTS)).tolist()),
    )


def _busy_by_step(schedule: FleetSchedule, span_h: float) -> tuple[tuple[float, float], ...]:
    """The mean GPUs held in equal steps of the time in which jobs were submitted."""
    edges = np.linspace(0.0, span_h * 3600, CURVE_POINTS + 1)
    at_s = np.concatenate([[-np.inf], schedule.busy_at_s])
    gpus = np.concatenate([[0], schedule.busy_gpus]).astype(np.float64)
    inside = (schedule.busy_at_s > 0) & (schedule.busy_at_s < edges[-1])
    instants = np.unique(np.concatenate([edges, schedule.busy_at_s[inside]]))
    level = gpus[np.searchsorted(at_s, instants[:-1], side="right") - 1]
    total = np.concatenate([[0.0], (level * np.diff(instants)).cumsum()])
    at_edges = np.interp(edges, instants, total)
    means = np.diff(at_edges) / np.diff(edges)
    return tuple(zip((edges[:-1] / 3600).tolist(), means.tolist(), strict=True))
