"""The pauses of torchft, with a lighthouse and managers that notice a silent death in a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.elastic_steps import Figure, Pauses
from benchmarks.elastic_trainers import Trainers, measure

HEARTBEAT_TIMEOUT_MS = 1000
JOIN_TIMEOUT_MS = 100


def run(folder: Path) -> Iterator[Figure]:
    """Nothing where torchft is missing: it is no dependency of costopt."""
    try:
        from torchft.coordination import LighthouseServer
    except ImportError as error:
        print(f"  torchft cannot be imported ({error}): not measured")
        return
    lighthouse = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=JOIN_TIMEOUT_MS,
        heartbeat_timeout_ms=HEARTBEAT_TIMEOUT_MS,
    )
    env = {"TORCHFT_LIGHTHOUSE": lighthouse.address()}
    pauses = Pauses("torchft")
    measure(Trainers("benchmarks.elastic_torchft_trainer", folder, env), pauses)
    lighthouse.shutdown()
    yield from pauses.figures()
