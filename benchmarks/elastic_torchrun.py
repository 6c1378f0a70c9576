"""The pauses of torchrun and DDP, tuned: torchrun starts every process again after each event.

Three nodes are three agents with a worker each. The store of their rendezvous is held by this
process, which outlives them all; the workers' own is not shared with it, since with that default a
joining node ends the job. Each worker restores a small torch.save.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.elastic_steps import Figure, Pauses, StepFiles
from benchmarks.elastic_trainers import SETTLED_S, SIZE, environment, trials
from costopt.agent.launch_spec import with_parent_watchdog

HOST = "127.0.0.1"
TRAINER = "benchmarks.elastic_torchrun_trainer"
TIED = with_parent_watchdog(0)
RENDEZVOUS = (
    "is_host=false,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,"
    "heartbeat_timeout=1"
)


def run(folder: Path) -> Iterator[Figure]:
    """Each trial begins with a job of its own."""
    return trials("torchrun + DDP, tuned", folder, _Job, _trial)


def _trial(job: _Job, pauses: Pauses) -> None:
    at = time.monotonic()
    for node in range(SIZE):
        job.launch(node)
    pauses.measure("cold start, to the first step", job.steps, at, size=SIZE)
    _settle(job)

    known, at = job.steps.trainers(), time.monotonic()
    job.kill_worker(1)
    pauses.measure("pause after a SIGKILL of a worker", job.steps, at, besides=known)
    _settle(job)

    known, at = job.steps.trainers(), time.monotonic()
    job.kill_node(0)
    pauses.measure("pause after the loss of a node", job.steps, at, besides=known)
    time.sleep(SETTLED_S)

    known, at = job.steps.trainers(), time.monotonic()
    job.launch(SIZE)
    pauses.measure("join of a node, to its first step", job.steps, at, size=SIZE, besides=known)


def _settle(job: _Job) -> None:
    """Until all train together."""
    job.steps.first(time.monotonic(), size=SIZE)
    time.sleep(SETTLED_S)


class _Job:
    """Agents of torchrun by node; each node's workers record their steps in its own folder."""

    def __init__(self, folder: Path) -> None:
        from torch._C._distributed_c10d import TCPStore

        self.steps = StepFiles(folder / "steps")
        self._saved = folder / "saved.pt"
        self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._agents: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self, node: int) -> None:
        """Start a node's agent, which starts its worker."""
        command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes=1:{SIZE}"]
        command += ["--nproc-per-node=1", "--max-restarts=100", "--monitor-interval=0.1"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={HOST}:{self._store.port}"]
        command += ["--rdzv-id=elastic", f"--rdzv-conf={RENDEZVOUS}", "--local-addr", HOST]
        command += ["--no-python", *TIED, sys.executable, "-m", TRAINER, f"--saved={self._saved}"]
        self._agents[node] = subprocess.Popen(
            [*command, f"--ends={self._folder(node)}"],
            env=environment({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
            stderr=subprocess.DEVNULL,
        )

    def kill_worker(self, node: int) -> None:
        """SIGKILL for the node's worker, the last that began there, not for its agent."""
        newest = max(self._folder(node).iterdir(), key=lambda path: path.stat().st_mtime)
        os.kill(int(newest.name), signal.SIGKILL)

    def kill_node(self, node: int) -> None:
        """SIGKILL for the node's agent, and so for its worker, which is tied to it."""
        agent = self._agents.pop(node)
        agent.kill()
        agent.wait()

    def close(self) -> None:
        """End every node."""
        for node in list(self._agents):
            self.kill_node(node)

    def _folder(self, node: int) -> Path:
        return self.steps.folder / str(node)
