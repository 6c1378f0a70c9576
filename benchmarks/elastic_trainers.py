"""Trainers that go on in the same process when others are lost or join: what their pauses are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Protocol, TypeVar

from benchmarks.elastic_steps import Figure, NotRecoveredError, Pauses, StepFiles

SIZE = 3
TRIALS = 3
SETTLED_S = 1.0


class Trainers:
    """Processes of one module that train together, and record their steps in ``steps``."""

    def __init__(
        self, module: str, folder: Path, env: Mapping[str, str], options: tuple[str, ...] = ()
    ) -> None:
        self.steps = StepFiles(folder)
        self.running: list[subprocess.Popen[bytes]] = []
        self._command = [sys.executable, "-m", module, *options, f"--ends={folder}", "--standby"]
        self._env = environment(env)
        self._waiting: list[subprocess.Popen[bytes]] = []

    def standby(self) -> subprocess.Popen[bytes]:
        """A process that imports torch and waits; ``go`` makes it a trainer."""
        process = subprocess.Popen(
            self._command,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._waiting.append(process)
        return process

    def go(self, process: subprocess.Popen[bytes]) -> None:
        """Let it train, once it is ready."""
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        self._waiting.remove(process)
        self.running.append(process)

    def ends(self, process: subprocess.Popen[bytes]) -> list[float]:
        """When each step of a trainer ended."""
        return [at for at, _ in self.steps.ends(self.steps.folder / str(process.pid))]

    def close(self) -> None:
        """End them all."""
        for process in (*self.running, *self._waiting):
            process.kill()
            process.communicate()


class Job(Protocol):
    """Nodes that train one job."""

    def close(self) -> None:
        """End every node."""
        ...


J = TypeVar("J", bound=Job)


def trials(
    who: str, folder: Path, job_of: Callable[[Path], J], trial: Callable[[J, Pauses], None]
) -> Iterator[Figure]:
    """Each trial begins with a job of its own, in a folder of its own, and ends it."""
    pauses = Pauses(who)
    for number in range(TRIALS):
        with closing(job_of(folder / str(number))) as job, suppress(NotRecoveredError):
            trial(job, pauses)
    yield from pauses.figures()


def measure(trainers: Trainers, pauses: Pauses) -> None:
    """Kill one, stop one, and let another join after each, until one does not recover."""
    try:
        _train(trainers, pauses)
        for trial in range(TRIALS * 2):
            _lose_and_join(trainers, pauses, trial)
        steps = trainers.ends(trainers.running[0])
        pauses.note(
            f"a step of {SIZE} trainers", median(later - at for at, later in pairwise(steps))
        )
    except NotRecoveredError:
        return
    finally:
        trainers.close()


def _train(trainers: Trainers, pauses: Pauses) -> None:
    waiting = [trainers.standby() for _ in range(SIZE)]
    for process in waiting:
        _until_ready(process)
    at = time.monotonic()
    for process in waiting:
        trainers.go(process)
    pauses.measure("start of warm processes, to the first step", trainers.steps, at, size=SIZE)
    time.sleep(SETTLED_S)


def _lose_and_join(trainers: Trainers, pauses: Pauses, trial: int) -> None:
    spare = trainers.standby()
    _until_ready(spare)
    time.sleep(SETTLED_S)
    victim = trainers.running.pop(trial % SIZE)
    at = time.monotonic()
    if trial % 2:
        os.kill(victim.pid, signal.SIGSTOP)
        event = "pause after a SIGSTOP (silent death)"
    else:
        victim.kill()
        event = "pause after a SIGKILL"
    pauses.measure(event, trainers.steps, at, size=SIZE - 1)
    victim.kill()
    victim.communicate()
    time.sleep(SETTLED_S)
    at = time.monotonic()
    trainers.go(spare)
    pauses.measure("join from a warm standby, to its first step", trainers.steps, at, size=SIZE)
    time.sleep(SETTLED_S)
    gaps = pairwise(trainers.ends(trainers.running[0]))
    longest_s = max(later - before for before, later in gaps if later > at)
    pauses.note("join, the longest step of the others", longest_s)


def stand_by() -> None:
    """In a process that ``Trainers.standby`` started: say that it is ready, and wait."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process' own, in which its modules are found, and more."""
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, **more}


def _until_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.readline()
