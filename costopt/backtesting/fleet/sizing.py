"""The fewest GPUs with which a policy completes jobs as early as the tenants' partitions do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from costopt.backtesting.fleet.policies import FleetTrial
from costopt.domain.errors import WorkloadError


@dataclass(frozen=True, slots=True)
class FleetSize:
    """A tried number of GPUs. ``is_enough``: the mean completion time is at most the target's."""

    gpus: int
    mean_s: float
    target_s: float
    is_enough: bool


def find_fleet_size(trial: FleetTrial, policy: str, share: float) -> Iterator[FleetSize]:
    """Yield what was tried, by bisection over whole nodes; the fewest that are enough come last.

    ``share`` is the part of the partitions' mean completion time to reach. Nodes are those of the
    cluster's first kind, from one that holds the mean demand's half to twice the partitions. Raise
    WorkloadError if even that does not reach it.
    """
    node = trial.cluster.node_gpus[0]
    submit_s = trial.workload.submit_s
    target_s = share * float((trial.static().end_s - submit_s).mean())
    static_gpus = int(trial.partitions.sum())
    demand = float((trial.workload.gpus * trial.workload.duration_s).sum()) / (trial.days * 86_400)

    def attempt(nodes: int) -> FleetSize:
        cluster = replace(trial.cluster, node_gpus=(node,) * nodes)
        schedule = replace(trial, cluster=cluster).replay(policy)
        mean_s = float(np.mean(schedule.end_s - submit_s))
        return FleetSize(nodes * node, mean_s, target_s, mean_s <= target_s)

    low, high = int(max(1, demand / 2 // node)) - 1, -(-2 * static_gpus // node)
    found = attempt(high)
    yield found
    if not found.is_enough:
        raise WorkloadError(
            f"{found.gpus} GPUs, twice the partitions, complete jobs in {found.mean_s:,.0f} s on "
            f"average: the target is {target_s:,.0f} s",
            hint="ask for a larger share of the partitions' time",
            code="too_large",
        )
    while high - low > 1:
        middle = (low + high) // 2
        tried = attempt(middle)
        yield tried
        if tried.is_enough:
            high, found = middle, tried
        else:
            low = middle
    yield found
