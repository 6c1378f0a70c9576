"""How long training pauses when a process is lost or joins, and what exactness costs.

Three trainers of a small GPT on this machine. A pause is the time from the event to the end of the
next step of those that go on, so it holds that step, and one that had to be made again.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from costopt.agent.membership_server import MembershipServer

TRIALS = 3
WARM_STEPS = 10
COMPARED_STEPS = 40
WIDTHS = {"1 M parameters": 144, "7 M parameters": 384}
TIMEOUT_S = 120.0

Figure = tuple[str, float, str]


def run() -> Iterator[Figure]:
    """Medians, and the worst where it matters."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _pauses(Path(folder))
        for label, width in WIDTHS.items():
            yield from _exactness(Path(folder), label, width)


class _Trainers:
    """Elastic trainers, each with a file of when its steps ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = MembershipServer().start()
        self.running: list[subprocess.Popen[bytes]] = []
        self._files: dict[int, Path] = {}

    def standby(self) -> subprocess.Popen[bytes]:
        """A process that imports torch and waits; ``go`` makes it a trainer."""
        path = self._folder / f"times-{len(self._files)}"
        env = {"COSTOPT_MEMBERSHIP": self._server.address, "WORLD_SIZE": "3"}
        process = _start("elastic", path, env, "--standby", pipe=subprocess.PIPE)
        self._files[process.pid] = path
        return process

    def go(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        self.running.append(process)

    def ends(self, process: subprocess.Popen[bytes]) -> list[tuple[float, int]]:
        """When each step of a trainer ended, and how many trained then."""
        path = self._files[process.pid]
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(at), int(size)) for at, _, size in map(str.split, lines)]

    def wait_for(self, size: int, process: subprocess.Popen[bytes], after: float = 0.0) -> float:
        """When the first step after ``after`` in a gang of that size ended."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            for at, trained in self.ends(process):
                if at > after and trained == size:
                    return at
            time.sleep(0.002)
        raise TimeoutError(f"no gang of {size} trained within {TIMEOUT_S} s")

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self._server.close()


def _pauses(folder: Path) -> Iterator[Figure]:
    trainers = _Trainers(folder)
    waiting = [trainers.standby() for _ in range(3)]
    for process in waiting:
        _until_ready(process)
    for process in waiting:
        trainers.go(process)
    trainers.wait_for(3, trainers.running[0])
    time.sleep(1.0)
    killed: list[float] = []
    silent: list[float] = []
    joined: list[float] = []
    held_up: list[float] = []
    for trial in range(TRIALS * 2):
        spare = trainers.standby()
        _until_ready(spare)
        time.sleep(0.5)
        victim = trainers.running.pop(trial % 3)
        other = trainers.running[0]
        at = time.monotonic()
        if trial % 2:
            os.kill(victim.pid, signal.SIGSTOP)
        else:
            victim.kill()
        (silent if trial % 2 else killed).append(trainers.wait_for(2, other, at) - at)
        victim.kill()
        victim.wait()
        time.sleep(1.0)
        at = time.monotonic()
        trainers.go(spare)
        joined.append(trainers.wait_for(3, spare, at) - at)
        held_up.append(_longest_gap(trainers.ends(other), at))
    steps = [at for at, _ in trainers.ends(trainers.running[0])]
    yield "a step of three trainers", _median_gap(steps), "s"
    trainers.close()
    yield "pause after a SIGKILL, median", median(killed), "s"
    yield "pause after a SIGKILL, worst", max(killed), "s"
    yield "pause after a SIGSTOP (silent death), median", median(silent), "s"
    yield "pause after a SIGSTOP (silent death), worst", max(silent), "s"
    yield "join from a warm standby: until its first step ends, median", median(joined), "s"
    yield "join: the longest step of the others, median", median(held_up), "s"


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
    kind = "compare" if size > 1 else "alone"
    fixed = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    options = (f"--steps={COMPARED_STEPS}", f"--width={width}")
    paths = [folder / f"compared-{rank}" for rank in range(size)]
    processes = []
    for rank, path in enumerate(paths):
        env = fixed | {"RANK": str(rank), "WORLD_SIZE": str(size)} if size > 1 else {}
        processes.append(_start(kind, path, env, *options))
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


def _start(
    kind: str, times: Path, env: dict[str, str], *options: str, pipe: int | None = None
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.elastic_trainer", kind, f"--times={times}"]
    return subprocess.Popen(
        [*command, *options], env=_env(env), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    )


def _until_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def _env(more: dict[str, str]) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, **more}


def _longest_gap(ends: list[tuple[float, int]], after: float) -> float:
    """Between two steps, the second of which ended later than ``after``."""
    pairs = pairwise(ends)
    return max(later - at for (at, _), (later, _) in pairs if later > after)


def _median_gap(ends: list[float]) -> float:
    return median(later - at for at, later in pairwise(ends))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
