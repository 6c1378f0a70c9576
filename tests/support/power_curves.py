"""Speed and power of measured trainings under power limits, and the best limit on such a curve."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

Point = tuple[float, float, float]
Curve = tuple[Point, ...]
"""(limit in W, speed as a share of that without a limit, W drawn), ascending."""

SPEED_FLOOR = 0.95
GPUS = ("V100-PCIe-32GB(250W)", "A40", "QuadroRTX6000", "P100", "A100-PCIe-80GB")
QUADRO_RTX_6000: Curve = (
    (100, 0.548, 93.1), (125, 0.821, 116.2), (150, 0.909, 134.7), (175, 0.951, 150.1),
    (200, 0.971, 166.7), (225, 0.982, 182.3), (250, 0.993, 188.5), (260, 1.0, 191.7),
)  # fmt: skip
"""Medians over the configurations that Zeus (NSDI 2023) measured."""


def measured_curves(gpu: str) -> list[Curve]:
    """The configurations of a GPU that were measured from the lowest to the highest limit."""
    folder = os.environ.get("COSTOPT_DATA")
    if folder is None:
        pytest.skip("COSTOPT_DATA names no folder with the recorded facts")
    found: dict[tuple[str, ...], dict[float, Point]] = defaultdict(dict)
    with (Path(folder) / "energy" / "power_cap_facts.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu"] == gpu and row["knob"] == "power_limit_W":
                figures = ("knob_value", "time_s", "avg_power_w_per_gpu")
                limit, seconds, watts = (float(row[name]) for name in figures)
                key = (row["n_gpus"], row["model"], row["dataset"], row["config"])
                found[key][limit] = (limit, 1 / seconds, watts)
    highest = max(limit for points in found.values() for limit in points)
    curves = [tuple(sorted(points.values())) for points in found.values() if len(points) >= 4]
    return [
        tuple((limit, speed / curve[-1][1], watts) for limit, speed, watts in curve)
        for curve in curves
        if curve[-1][0] == highest
    ]


def median_curve(curves: Iterable[Curve]) -> Curve:
    """The median at each limit that at least half of the curves have."""
    at: dict[float, list[Point]] = defaultdict(list)
    for curve in curves:
        for point in curve:
            at[point[0]].append(point)
    most = max(map(len, at.values()))
    return tuple(
        (limit, median(p[1] for p in points), median(p[2] for p in points))
        for limit, points in sorted(at.items())
        if len(points) >= most / 2
    )


def point_at(curve: Curve, limit_w: float) -> Point:
    """Linear between the limits that were measured."""
    for low, high in pairwise(curve):
        if limit_w <= high[0]:
            share = max(0.0, (limit_w - low[0]) / (high[0] - low[0]))
            speed, watts = (low[i] + share * (high[i] - low[i]) for i in (1, 2))
            return limit_w, speed, watts
    return curve[-1]


def energy_at(curve: Curve, limit_w: float) -> float:
    """Energy per unit of work as a share of that without a limit."""
    _, speed, watts = point_at(curve, limit_w)
    return watts / curve[-1][2] / (speed / curve[-1][1])


def best_energy(curve: Curve) -> float:
    """The least energy at any whole watt that keeps 95 % of the speed."""
    limits = range(round(curve[0][0]), round(curve[-1][0]) + 1)
    floor = SPEED_FLOOR * curve[-1][1]
    return min(energy_at(curve, w) for w in limits if point_at(curve, w)[1] >= floor)
