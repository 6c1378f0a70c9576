"""What a node has measured of itself so far."""

from __future__ import annotations

from dataclasses import dataclass

GPU = "gpu"
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class NodeMeasurement:
    """Totals from ``since`` to ``at``, wall times in POSIX seconds. Unknown is None.

    ``energy_wh`` is what the meters of ``parts`` ("gpu", "cpu") read: GPU boards, CPU packages and
    their memory; fans, power supplies and the rest of the node are in none of them. ``gpus`` is how
    many GPUs were read. ``training_wh`` and ``training_s`` are of the time in which the trainer
    trained. ``gpu_utilization`` is a share of 0–1 and the mean over GPUs, ``gpu_memory_share`` the
    fullest GPU's, ``power_w`` the sum of the meters: these three are the newest figures.
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
    power_w: float | None = None
