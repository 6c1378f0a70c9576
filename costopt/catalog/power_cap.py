"""What power limits of GPUs did to the speed and the power of training where they were measured."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from costopt.catalog.table import read_table
from costopt.domain.estimate import Basis


@dataclass(frozen=True, slots=True)
class MeasuredCap:
    """``speed`` and ``gpu_power`` are shares of the same training's without the limit.

    Medians over ``workloads``; ``basis`` is MODELLED where another board of the same chip was
    measured.
    """

    gpu_model: str
    cap_w: float
    speed: float
    gpu_power: float
    workloads: int
    basis: Basis
    source: str


def read_power_caps() -> dict[str, tuple[MeasuredCap, ...]]:
    """The caps of each GPU model that has any, lowest watts first."""
    caps: dict[str, list[MeasuredCap]] = defaultdict(list)
    for row in read_table("power_caps"):
        cap = MeasuredCap(
            gpu_model=row["gpu_model"],
            cap_w=float(row["cap_w"]),
            speed=float(row["speed"]),
            gpu_power=float(row["gpu_power"]),
            workloads=int(row["workloads"]),
            basis=Basis(row["basis"]),
            source=row["source"],
        )
        caps[cap.gpu_model].append(cap)
    return {model: tuple(sorted(known, key=_watts)) for model, known in caps.items()}


def _watts(cap: MeasuredCap) -> float:
    return cap.cap_w
