"""What each tenant would have for itself: as the cluster's file says, or by its demand."""

from __future__ import annotations

import numpy as np

from costopt.domain.cluster import Cluster
from costopt.domain.errors import WorkloadError
from costopt.optimize.rounds.gangs import Ints
from costopt.workload.statistics import mean_demand_gpus
from costopt.workload.workload import Workload

DEMAND_FACTOR = 2.0
RULE = (
    "Static: each tenant on a partition of twice its mean demand in whole nodes, at least its "
    "largest gang, sized with hindsight, with EASY backfill."
)


def partition_sizes(workload: Workload, cluster: Cluster, days: float) -> Ints:
    """Return the GPUs of each tenant's partition, in the order of the workload's tenants.

    Raise WorkloadError where the cluster's file names partitions and lacks one, or one is smaller
    than a job of its tenant.
    """
    largest = np.zeros(len(workload.tenants), dtype=np.int64)
    np.maximum.at(largest, workload.tenant, workload.gpus)
    if not cluster.partition_gpus:
        node = max(cluster.node_gpus)
        demand = mean_demand_gpus(workload, days * 86_400)
        whole: Ints = (np.ceil(DEMAND_FACTOR * demand / node) * node).astype(np.int64)
        return np.maximum(whole, largest)
    named = cluster.partition_gpus
    for tenant, gpus in zip(workload.tenants, largest, strict=True):
        if gpus and tenant not in named:
            raise WorkloadError(
                f"cluster {cluster.name} names no partition of tenant {tenant}",
                hint="add it to tenants in the cluster's file, or name no tenant there",
                code="unknown_name",
            )
        if gpus > named.get(tenant, 0):
            raise WorkloadError(
                f"a job of tenant {tenant} asks for {gpus} GPUs, its partition has {named[tenant]}",
                hint="enlarge the partition in the cluster's file",
                code="too_large",
            )
    return np.array([named.get(tenant, 0) for tenant in workload.tenants], dtype=np.int64)
