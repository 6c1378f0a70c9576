"""The node power model against measured nodes, and what dollars buy in kWh and CO2e."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.measured_power import (
    cross_validated_errors,
    errors,
    mean_absolute,
    measured_nodes,
)


def run() -> Iterator[tuple[str, float, str]]:
    """Yield errors of the modelled power, then savings by tolerance where there is data."""
    yield from _model_errors()
    folder = os.environ.get("COSTOPT_DATA")
    if folder is None:
        print("  COSTOPT_DATA is unset: no job was planned or run within a tolerance")
        return
    from benchmarks.energy_saving import savings

    yield from savings(Path(folder))


def _model_errors() -> list[tuple[str, float, str]]:
    """Of the modelled power, as a plan sees it, over the measured configurations."""
    nodes = measured_nodes()
    inside = [
        abs(error) <= node.power.relative_error
        for node, error in zip(nodes, cross_validated_errors(nodes), strict=True)
    ]
    return [
        *_of("fitted to all", errors(nodes)),
        *_of("each from the other systems", cross_validated_errors(nodes)),
        ("node power, each from the other systems, within its interval", 100 * _mean(inside), "%"),
    ]


def _of(how: str, found: Sequence[float]) -> list[tuple[str, float, str]]:
    return [
        (f"node power, {how}, mean absolute error", 100 * mean_absolute(found), "%"),
        (f"node power, {how}, bias", 100 * _mean(found), "%"),
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
