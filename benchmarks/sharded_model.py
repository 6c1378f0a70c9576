"""Modelled: checkpoints of 70B parameters on 64 GPUs and of 405B on 512, from published figures.

``python -m benchmarks sharded_model``; nothing here was measured on such a machine. Nodes are
p5.48xlarge with 8 H100. Time lost is to saves, interruptions and restores alone: no stragglers, no
waiting for nodes, no warm-up. An interruption stops all, on average half an interval after a save.
"""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.storage import COMMIT_S, COPY_GBPS, STORE_GBPS

BYTES_PER_PARAMETER = 12
"""fp32 weights and AdamW's two moments."""
RUNS = ((70, 64), (405, 512))
"""Billions of parameters, GPUs."""
GPUS_PER_NODE = 8
PCIE_GBPS = 512.0
"""PCIe 5.0 x16 in one direction: half of the 128 GB/s of NVIDIA's data sheet of the H100."""
FAILURES_PER_NODE_HOUR = {
    "hardware": 1 / (7.9 * 1024 / GPUS_PER_NODE),
    "spot, assumed": 0.02,
}
"""Hardware: a mean of 7.9 h to a failure at 1,024 GPUs (arXiv 2410.21680)."""
INTERVAL_S = 300.0
RESTART_S = 90.0
"""To notice, to start the processes again and to form the group: an assumption."""

Figure = tuple[str, float, str]


def run() -> Iterator[Figure]:
    """Yield gigabytes, seconds and shares of time."""
    for billions, gpus in RUNS:
        nodes = gpus // GPUS_PER_NODE
        state_gb = billions * BYTES_PER_PARAMETER
        name = f"{billions}B, {gpus} GPUs"
        copy_s = 8 * state_gb / gpus / COPY_GBPS
        store_s = 8 * state_gb / nodes / STORE_GBPS + COMMIT_S
        one_s = 8 * state_gb / STORE_GBPS + COMMIT_S
        yield f"{name}: state", state_gb, "GB"
        yield f"{name}: of a node", state_gb / nodes, "GB"
        yield f"{name}: a GPU's copy at 20 GB/s (assumed)", copy_s, "s"
        yield f"{name}: a GPU's copy at PCIe 5.0's 64 GB/s", 8 * state_gb / gpus / PCIE_GBPS, "s"
        yield f"{name}: save or restore, store at 100 Gbit/s a node", store_s, "s"
        yield f"{name}: the same by one writer", one_s, "s"
        for cause, per_node_hour in FAILURES_PER_NODE_HOUR.items():
            rate = per_node_hour * nodes / 3600
            for way, stall_s, moved_s in (
                ("sharded", copy_s, store_s),
                ("one writer, waited for", one_s, one_s),
            ):
                interval_s = max(INTERVAL_S, moved_s)
                lost = stall_s / interval_s + rate * (interval_s / 2 + RESTART_S + moved_s)
                yield f"{name}: share of time that trains, {cause}, {way}", 1 / (1 + lost), ""
