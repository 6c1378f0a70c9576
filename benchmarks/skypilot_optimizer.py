"""SkyPilot's own answer, run by an interpreter that has SkyPilot; imports nothing of costopt.

Reads candidates from stdin, ``[{"name": …, "usd_per_hour": …, "run_s": …}, …]``, and prints
``{"name": …, "usd": …, "seconds": …, "version": …}``. No cloud is asked: the candidates take the
place of what SkyPilot finds in its catalogues. The choice itself is its ``Optimizer.optimize``, by
cost: ``task.num_nodes × resources.get_cost(estimated run time)``.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any
from unittest import mock


def choose(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """The cheapest candidate by SkyPilot, its dollars, and the seconds that the choice took."""
    sky = importlib.import_module("sky")
    optimizer = importlib.import_module("sky.optimizer")

    class Candidate(optimizer.DummyResources):  # type: ignore[misc, name-defined]
        def get_cost(self, seconds: float) -> float:
            return float(self.usd_per_hour) * seconds / 3600

    resources = {}
    for candidate in candidates:
        one = Candidate()
        one.usd_per_hour = candidate["usd_per_hour"]
        resources[one] = candidate
    with sky.Dag() as dag:
        task = sky.Task("train", run="true")
    task.resources = set(resources)
    task.set_time_estimator(lambda one: resources[one]["run_s"])

    def launchable(task: Any, **_: Any) -> tuple[Any, ...]:
        return {one: [one] for one in task.resources}, {}, [], {}

    with (
        mock.patch.object(optimizer, "_check_specified_clouds", return_value=None),
        mock.patch.object(optimizer, "_fill_in_launchable_resources", launchable),
    ):
        began = time.perf_counter()
        sky.Optimizer.optimize(dag, quiet=True)
        seconds = time.perf_counter() - began
    chosen = resources[task.best_resources]
    return {
        "name": chosen["name"],
        "usd": task.best_resources.get_cost(chosen["run_s"]),
        "seconds": seconds,
        "version": sky.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(choose(json.load(sys.stdin))))
