"""The pauses of torchft, with a lighthouse and managers that notice a silent death in a second."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.elastic_steps import Figure, Pauses
from benchmarks.elastic_trainers import Trainers, environment, measure

LIGHTHOUSE = (sys.executable, "-m", "benchmarks.elastic_torchft_lighthouse")


def run(folder: Path) -> Iterator[Figure]:
    """Nothing where torchft is missing: costopt does not depend on it."""
    lighthouse = subprocess.Popen(
        LIGHTHOUSE,
        env=environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert lighthouse.stdout is not None
    address = lighthouse.stdout.readline().strip()
    pauses = Pauses("torchft")
    if address:
        env = {"TORCHFT_LIGHTHOUSE": address}
        measure(Trainers("benchmarks.elastic_torchft_trainer", folder, env), pauses)
    else:
        print("  torchft cannot be imported: not measured")
    lighthouse.communicate()
    yield from pauses.figures()
