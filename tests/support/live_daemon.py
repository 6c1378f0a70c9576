"""``costopt daemon`` as a user starts it, on a market typed for the test."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costopt.daemon.intake.admission import admit_job
from costopt.domain import events as ev
from costopt.domain.control import DesiredState
from costopt.ledger.base import open_ledger
from costopt.market.history_file import write_history
from costopt.registry.registry import REGISTRY, open_registry
from tests.support.forked_commands import ForkedCommand
from tests.support.live_run import CALM, PLAIN, SPEED, STEPPER, T0, UNINTERRUPTIBLE, States, history
from tests.support.node_folder import NodeFolder, variables

TICK_S = 60
COSTOPT = ("-m", "costopt")


def awaits_end(process: subprocess.Popen[str]) -> bool:
    """Whether a daemon is up far enough to end well on SIGTERM (proc_pid_status(5))."""
    status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@dataclass
class DaemonPlace(NodeFolder):
    """A folder with a market and the daemon's state, or a part of it in ``database``."""

    database: str | None = None

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def write(self, pools: Mapping[str, States] | None = None) -> DaemonPlace:
        """Write market.parquet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_history(history(pools or CALM | UNINTERRUPTIBLE), self.folder / "market.parquet")
        return self

    def start(self, *more: str, program: Sequence[str] = COSTOPT) -> subprocess.Popen[str]:
        """Start the daemon in a process group of its own."""
        command = [
            *(*program, "daemon", "--market", "market.parquet"),
            *("--speed", str(SPEED), "--notice", "300", "--tick", str(TICK_S)),
            *("--state-dir", "state", "--mode", "enforce", "--listen", "none"),
            *(() if self.database is None else ("--database", self.database)),
            *more,
        ]
        return ForkedCommand(command, self.folder, variables())

    def submit(self, name: str, tenant: str = "default", steps: int = 60, nodes: int = 1) -> None:
        """Hand in a job whose trainer needs no torch, as the service would."""
        self.state.mkdir(exist_ok=True)
        document = self.job(name, tenant, steps, nodes)
        admitted = admit_job(document, PLAIN, str(self.folder), "a test", 0, T0)
        with open_registry(self.database or self.state / REGISTRY) as registry:
            registry.submit(admitted.submission)

    def tell(self, name: str, desired_state: DesiredState) -> None:
        """As a user would."""
        with open_registry(self.database or self.state / REGISTRY) as registry:
            registry.set_desired_state(name, desired_state, "a test", T0)

    def saves(self, name: str) -> Path:
        """Where a job's checkpoints lie."""
        return self.folder / f"saves-{name}"

    def job(self, name: str, tenant: str, steps: int, nodes: int) -> str:
        saves = self.saves(name)
        trainer = f"exec {sys.executable} {STEPPER} {steps} 0.05 {saves}"
        return (
            f"kind: job\nversion: 1\nname: {name}\ntenant: {tenant}\n"
            f"work: {{amount: {steps}, unit: steps}}\ndeadline: 5d\n"
            f"resources: {{gpu_models: [T4], min_nodes: {nodes}, max_nodes: {nodes}}}\n"
            f"throughput: {{points: [{{gpu: T4, gpus: {nodes}, units_per_s: 0.05}}]}}\n"
            f"checkpoint: {{uri: {saves}, size_gib: 0.004, save: 10s, restore: 2m}}\n"
            f'startup: 3m\nrun: ["sh", "-c", "{trainer}"]\n'
        )

    def events(self, job: str) -> list[ev.Event]:
        """A job's events so far."""
        path = self.state / "ledger.sqlite"
        if self.database is None and not path.exists():
            return []
        with open_ledger(self.database or path) as ledger:
            return [recorded.event for recorded in ledger.events(job)]

    def of(self, job: str, kind: type[Any]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events(job) if isinstance(event, kind)]
