"""Pollux's published workloads in Pollux's own simulator: `priced` beside what was published.

``python -m benchmarks pollux --pollux FOLDER``: the folder simulator/ of github.com/petuum/adaptdl,
branch osdi21-artifact (Apache-2.0), which is not part of this project; it needs scipy.
Its own policies Tiresias and Optimus run beside ours on the workload whose result is known, 6.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.pollux_policy import in_simulator
from benchmarks.pollux_simulator import ROUND_S, completion_times, load_simulator, tiresias
from benchmarks.results import Figure
from costopt.optimize.rounds.priced import PricedPolicy

RESTART_S = 30.0
"""What a change of a gang costs in the simulator. Gangs may change in each round, as those of
Pollux: speeds are learned by trying larger ones."""
PUBLISHED_S = {"Pollux": 2_751, "Tiresias": 4_038, "Optimus": 5_682}
"""Means over the eight workloads (OSDI'21)."""
KNOWN = (
    ("work declared, speeds shared", True, True),
    ("work declared", True, False),
    ("work not declared, speeds shared", False, True),
    ("work not declared", False, False),
)
"""What is known of a job: its work, and what other jobs of its application have measured."""
REPRODUCED = 6
WORKLOADS = tuple(range(1, 9))


def run(folder: Path | None, workloads: Sequence[int] = WORKLOADS) -> Iterator[Figure]:
    """Yield mean completion times, by workload and of all; none without a folder."""
    if folder is None:
        print("--pollux is not given: Pollux's simulator was not run", file=sys.stderr)
        return
    simulator = load_simulator(folder)
    own = folder / "workloads" / f"workload-{REPRODUCED}.csv"
    for name, policy in (
        ("Tiresias", tiresias(simulator)),
        ("Optimus", simulator.OptimusPolicy()),
    ):
        taken_s = completion_times(simulator, own, policy)
        yield f"workload {REPRODUCED}, {name}, run here: mean", float(taken_s.mean()), "s"
    for label, is_declared, shares_speeds in KNOWN:
        means = []
        for number in workloads:
            policy = in_simulator(
                simulator, PricedPolicy(RESTART_S, ROUND_S),
                is_declared=is_declared, shares_speeds=shares_speeds,
            )  # fmt: skip
            path = folder / "workloads" / f"workload-{number}.csv"
            means.append(float(completion_times(simulator, path, policy).mean()))
            yield f"workload {number}, priced, {label}: mean", means[-1], "s"
        yield f"all workloads, priced, {label}: mean", float(np.mean(means)), "s"
    for name, seconds in PUBLISHED_S.items():
        yield f"all workloads, {name}, as published: mean", float(seconds), "s"
