"""A cold start to the first step: agents, trainers and the state, where no process remains."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.elastic_steps import LIMIT_S, Figure, NotRecoveredError, Pauses, StepFiles
from benchmarks.elastic_trainers import environment, trials
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang
from costopt.store.folder import FileStore

SIZE = 2
JOB = "relaunch"
INTERVAL_S = 1.0


def run(folder: Path) -> Iterator[Figure]:
    """Each trial begins with a job of its own."""
    return trials(f"costopt, agents of {SIZE} nodes", folder, _Job, _trial)


def _trial(job: _Job, pauses: Pauses) -> None:
    at = time.monotonic()
    job.launch(1, "n1", "n2")
    pauses.measure("cold start, to the first step", job.steps, at, size=SIZE)
    job.until_saved()
    job.close()

    known, at = job.steps.trainers(), time.monotonic()
    job.launch(2, "n3", "n4")
    event = "cold relaunch from a checkpoint, to the first step"
    pauses.measure(event, job.steps, at, size=SIZE, besides=known)


class _Job:
    """What a controller does, and nodes: processes of agents, which start the trainers."""

    def __init__(self, folder: Path) -> None:
        self.steps = StepFiles(folder / "steps")
        self._folder = folder
        self._store = folder / "store"
        self._mailbox = Mailbox(FileStore(self._store), JOB)
        self._agents: list[subprocess.Popen[bytes]] = []

    def launch(self, generation: int, *members: str) -> None:
        """Form a gang, and start an agent on each of its nodes."""
        self._mailbox.post_gang(
            Gang(
                JOB,
                generation,
                members,
                ("python", "-m", "benchmarks.elastic_trainer", f"--ends={self.steps.folder}"),
                str(self._folder),
                time.time(),
                checkpoint_uri=str(self._folder / "checkpoints"),
                checkpoint_interval_s=INTERVAL_S,
                elastic=True,
                secret=str(generation),
            )
        )
        for node in members:
            command = [sys.executable, "-m", "costopt.agent", f"--store={self._store}"]
            command += [f"--job={JOB}", f"--node={node}", f"--folder={self._folder / node}"]
            command += ["--notices=none", "--meter=none"]
            self._agents.append(subprocess.Popen(command, env=environment({})))

    def until_saved(self) -> None:
        """Raises NotRecoveredError."""
        until = time.monotonic() + LIMIT_S
        while not self._mailbox.checkpoints():
            if time.monotonic() > until:
                raise NotRecoveredError
            time.sleep(0.1)

    def close(self) -> None:
        """Every node is lost; its trainer is tied to its agent."""
        for agent in self._agents:
            agent.kill()
            agent.wait()
        self._agents.clear()
