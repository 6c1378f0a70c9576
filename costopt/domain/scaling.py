"""What a gang keeps of the ideal speed-up at each doubling of its GPUs, by what connects them."""

from __future__ import annotations

import math

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import InstanceType

FAST_LINKS = Estimate(
    0.98, 0.95, 1.0, Basis.MODELLED, "NVLink, InfiniBand, EFA: LLM Foundry @8c8dd48"
)
"""The median, 5 % and 95 % (at most linear) of 42 doublings in LLM Foundry's "H100 80GB BF16" (8 to
512 GPUs) and "A100 40GB" (8 to 128 GPUs, 1,600 Gbit/s a node; the H100s' network is not
stated), scripts/train/benchmarking: pairs of equal model, sequence, micro-batch and sharding kept
0.98 (0.956 to 1.02)."""
SLOW_LINKS = Estimate(0.96, 0.80, 1.0, Basis.MODELLED, "PCIe, Ethernet: Pollux' T4 @c793c70")
"""The same of 190 doublings of petuum/adaptdl simulator/traces on nodes of 4 T4 with 50 Gbit/s:
five applications (of embeddings, ncf is left out) at the largest recorded local batch kept 0.964
(0.80 to 1.08)."""
FABRIC_GBPS_PER_GPU = 50.0
"""From here on a network counts as fast, as EFA of p4d: an assumption. The recorded ones have 200
and 400 Gbit/s per GPU, and 12.5."""
NVLINK_BOARD = "SXM"


def kept_speed_up(
    machine: InstanceType, begin_gpus: int, end_gpus: int, stated: float | None = None
) -> Estimate:
    """Return the speed per GPU of ``end_gpus`` over that of ``begin_gpus`` on such machines.

    It falls at each doubling by the efficiency of the links that the doubling adds: within a node,
    then between nodes. All doublings are taken to lie at the same end of the interval. A ``stated``
    efficiency is the job's own: its interval is the relative one of fast links, the narrower, as
    the wider is mostly that between applications.
    """
    node_gpus, network_gbps = machine.gpu_count, machine.network_gbps or 0.0
    is_fast = network_gbps >= FABRIC_GBPS_PER_GPU * node_gpus
    within = FAST_LINKS if NVLINK_BOARD in machine.gpu.model.upper() else SLOW_LINKS
    between = FAST_LINKS if is_fast else SLOW_LINKS
    counts = begin_gpus, end_gpus
    begin, end = (min(gpus, node_gpus) for gpus in counts)
    doublings = {within: math.log2(end / begin)}
    begin, end = (max(gpus, node_gpus) for gpus in counts)
    doublings[between] = doublings.get(between, 0.0) + math.log2(end / begin)
    value, low, high, sources = 1.0, 1.0, 1.0, []
    for links, number in doublings.items():
        if number:
            spread, each = (links, links.value) if stated is None else (FAST_LINKS, stated)
            value *= each**number
            low *= (each * spread.low / spread.value) ** number
            high *= (each * spread.high / spread.value) ** number
            sources.append(links.source)
    low, high = sorted((low, high))
    return Estimate(value, low, high, Basis.MODELLED, " and ".join(sources))
