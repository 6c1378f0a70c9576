"""How long training pauses when a process or node is lost or joins, and what exactness costs.

A small GPT on this machine: under costopt, under torchrun with DDP, and under torchft where that
can be imported. A pause is the time from the event to the end of the next step of those that go on,
or of those that were started again; so it holds that step, and one that had to be made again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import elastic_exactness, elastic_relaunch, elastic_torchft, elastic_torchrun
from benchmarks.elastic_steps import Figure, Pauses
from benchmarks.elastic_trainers import SIZE, Trainers, measure
from costopt.agent.membership_server import MembershipServer


def run() -> Iterator[Figure]:
    """Medians, and the worst where it matters; prints what was not measured, and why."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from _costopt(folder / "costopt")
        yield from elastic_relaunch.run(folder / "relaunch")
        yield from elastic_torchft.run(folder / "torchft")
        yield from elastic_torchrun.run(folder / "torchrun")
        yield from elastic_exactness.run(folder)


def _costopt(folder: Path) -> Iterator[Figure]:
    server = MembershipServer().start()
    env = {"COSTOPT_MEMBERSHIP": server.address, "WORLD_SIZE": str(SIZE)}
    pauses = Pauses("costopt")
    measure(Trainers("benchmarks.elastic_trainer", folder, env), pauses)
    server.close()
    yield from pauses.figures()
