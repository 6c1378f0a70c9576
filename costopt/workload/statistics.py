"""What a workload asks of a cluster: arrivals, sizes and load, by tenant and over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costopt.workload.workload import Flags, Floats, Workload

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class WorkloadPart:
    """Some of the jobs: how many, how large and long, and the GPUs that they need at a time.

    ``mean_gpus`` is their GPU-time by the span of all submissions; ``daily_gpus`` holds, for each
    day, the GPU-time of the jobs submitted in it by the day's length.
    """

    name: str
    jobs: int
    single_gpu_share: float
    largest_gpus: int
    p50_s: float
    p95_s: float
    gpu_hours: float
    mean_gpus: float
    daily_jobs: tuple[int, ...]
    daily_gpus: tuple[float, ...]


def describe_tenants(workload: Workload) -> list[WorkloadPart]:
    """Return a part per tenant, the largest load first, and all jobs as the last."""
    tenants = [
        _part(workload, name, workload.tenant == index)
        for index, name in enumerate(workload.tenants)
        if (workload.tenant == index).any()
    ]
    tenants.sort(key=lambda each: -each.gpu_hours)
    return [*tenants, _part(workload, "all", np.ones(len(workload.jobs), dtype=bool))]


def describe_sizes(workload: Workload) -> list[WorkloadPart]:
    """Return a part per class of size, doubling from one GPU."""
    size = np.ceil(np.log2(workload.gpus)).astype(np.int64)
    parts = []
    for power in np.unique(size):
        low, high = 2 ** max(0, int(power) - 1) + (power > 0), 2 ** int(power)
        name = f"{high}" if low >= high else f"{low} to {high}"
        parts.append(_part(workload, name, size == power))
    return parts


def mean_demand_gpus(workload: Workload, span_s: float) -> Floats:
    """Return by tenant the GPUs that its jobs keep busy on average over a span of seconds."""
    load = workload.gpus * workload.duration_s
    return np.bincount(workload.tenant, weights=load, minlength=len(workload.tenants)) / span_s


def _part(workload: Workload, name: str, chosen: Flags) -> WorkloadPart:
    gpus, duration_s = workload.gpus[chosen], workload.duration_s[chosen]
    first_s = np.floor(workload.submit_s[0] / DAY_S) * DAY_S
    days = int((workload.submit_s[-1] - first_s) // DAY_S) + 1
    day = ((workload.submit_s[chosen] - first_s) // DAY_S).astype(np.int64)
    load = gpus * duration_s
    return WorkloadPart(
        name=name,
        jobs=int(chosen.sum()),
        single_gpu_share=float((gpus == 1).mean()),
        largest_gpus=int(gpus.max()),
        p50_s=float(np.percentile(duration_s, 50)),
        p95_s=float(np.percentile(duration_s, 95)),
        gpu_hours=float(load.sum() / 3600),
        mean_gpus=float(load.sum() / max(workload.span_s, DAY_S)),
        daily_jobs=tuple(np.bincount(day, minlength=days).tolist()),
        daily_gpus=tuple((np.bincount(day, weights=load, minlength=days) / DAY_S).tolist()),
    )
