"""What the runtime costs a step: exact and close against steps without it, in turns."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.elastic_steps import Figure
from benchmarks.elastic_trainers import environment

STEPS = 40
WIDTHS = {"1 M parameters": 144, "7 M parameters": 384}


def run(folder: Path) -> Iterator[Figure]:
    """At two sizes of the model."""
    for label, width in WIDTHS.items():
        yield from _exactness(folder, label, width)


def _exactness(folder: Path, label: str, width: int) -> Iterator[Figure]:
    steps = _compared(folder, width, size=2)
    names = {"exact": "exact", "close": "close", "ddp": "DDP"}
    yield f"{label}, 2 processes: all-reduce by hand, CPU of a step", _middle(steps["plain"]), "s"
    for name, shown in names.items():
        yield f"{label}, 2 processes: {shown} against that", _slower(steps, name), "%"
    steps = _compared(folder, width, size=1)
    yield f"{label}, 1 process: no runtime, CPU of a step", _middle(steps["plain"]), "s"
    yield f"{label}, 1 process: exact against that", _slower(steps, "exact"), "%"
    yield f"{label}, 1 process: close against that", _slower(steps, "close"), "%"


Blocks = dict[int, list[float]]


def _compared(folder: Path, width: int, size: int) -> dict[str, Blocks]:
    """CPU seconds of each step on rank 0, which other load on the machine changes less than the
    wall's; the communication's threads are in them."""
    fixed = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    command = [sys.executable, "-m", "benchmarks.elastic_trainer"]
    command += [f"--steps={STEPS}", f"--width={width}"]
    paths = [folder / f"compared-{rank}" for rank in range(size)]
    processes = []
    for rank, path in enumerate(paths):
        env = fixed | {"RANK": str(rank), "WORLD_SIZE": str(size)} if size > 1 else {}
        processes.append(subprocess.Popen([*command, f"--times={path}"], env=environment(env)))
    if any(process.wait() for process in processes):
        raise RuntimeError("a trainer of the comparison failed")
    found: dict[str, Blocks] = {}
    for line in paths[0].read_text().splitlines():
        name, block, _, cpu_s = line.split()
        found.setdefault(name, {}).setdefault(int(block), []).append(float(cpu_s))
    return found


def _middle(blocks: Blocks) -> float:
    """Of all steps but those of the first block, which warms up."""
    return median(s for block, seconds in blocks.items() if block for s in seconds)


def _slower(steps: dict[str, Blocks], name: str) -> float:
    """Per cent, the median over blocks that ran one after the other."""
    ratios = [
        median(seconds) / median(steps["plain"][block])
        for block, seconds in steps[name].items()
        if block
    ]
    return 100.0 * (median(ratios) - 1.0)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
