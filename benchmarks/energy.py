"""The node power model against the measured nodes that the project ships."""

from __future__ import annotations

from costopt.energy.measured import mean_absolute_error, measured_nodes


def run() -> list[tuple[str, float, str]]:
    """Mean absolute percentage error over the single-node wall-power points."""
    return [
        (
            "node power, single nodes, mean absolute error",
            mean_absolute_error(measured_nodes()) * 100,
            "%",
        )
    ]
