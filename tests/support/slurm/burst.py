"""A Slurm cluster whose nodes c1 to c4 are a simulated cloud's, powered up and down by costopt.

The cloud's nodes are processes of this machine: each runs the agent, and this slurmd. Their market
is as fast as the wall, since Slurm's clock is.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costopt.domain import events as ev
from costopt.ledger.base import open_ledger
from costopt.market.history_file import write_history
from tests.support.live_run import UNINTERRUPTIBLE, States, history
from tests.support.node_folder import ROOT, processes_under, variables
from tests.support.slurm.cluster import Partition, SlurmCluster, slurm_cluster, until

EXAMPLE = ROOT / "examples" / "slurm-burst"
MARKET = UNINTERRUPTIBLE | {"a/g4dn.xlarge/spot": ((0, 4, 0.16),)}
PATIENCE_S = 300.0
LOG_CHARACTERS = 8000
MAIN = Partition("main", nodes="n1", more="Default=YES")


@dataclass
class BurstCloud:
    """The cluster, and a daemon over a simulated cloud, in one folder."""

    slurm: SlurmCluster
    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def server(self) -> str:
        return f"unix:{self.state / 'daemon.sock'}"

    @contextmanager
    def daemon(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """A daemon that answers; its nodes end with the block."""
        with (self.folder / "daemon.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "costopt", "daemon", "--market", "market.parquet"),
                    *("--speed", "1", "--tick", "1", "--notice", "20", "--state-dir", "state"),
                    *("--mode", "enforce", "--listen", "none", *more),
                ],
                cwd=self.folder,
                env=variables(**self.slurm.environment),
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: self.costopt("health").returncode == 0, PATIENCE_S)
            yield process
        finally:
            process.kill()
            process.wait()
            self.clear()

    def clear(self) -> None:
        """Kill the cloud's nodes that are left."""
        for pid in processes_under(self.folder):
            subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)

    def costopt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of costopt against the daemon; ``health`` asks whether it answers."""
        words = ("daemon", "mode") if arguments == ("health",) else arguments
        return subprocess.run(
            [sys.executable, "-m", "costopt", *words, "--server", self.server],
            env=variables(**self.slurm.environment),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def jobs(self) -> list[Mapping[str, Any]]:
        """The daemon's jobs, as ``costopt status`` shows them."""
        listed: list[Mapping[str, Any]] = json.loads(
            self.costopt("status", "--output", "json").stdout
        )["rows"]
        return listed

    def events(self, kind: type[Any]) -> list[Any]:
        """The ledger's events of one kind."""
        with open_ledger(self.state / "ledger.sqlite") as ledger:
            return [r.event for r in ledger.events() if isinstance(r.event, kind)]

    def pools(self) -> list[str]:
        """The pool of each node launched so far."""
        return [event.pool for event in self.events(ev.NodeLaunched)]

    def all_released(self) -> bool:
        """Whether the ledger knows the end of each node that it knows the launch of."""
        ended = {event.node_id for event in self.events(ev.NodeEnded)}
        return ended == {event.node_id for event in self.events(ev.NodeLaunched)}

    def node(self, name: str) -> tuple[str, str]:
        """A node's state as sinfo shows it, and the reason of its being down."""
        shown = self.slurm.run("sinfo", "-hN", "-p", "burst", "-n", name, "-o", "%T %E")
        state, _, reason = shown.partition(" ")
        return state, reason

    def shown(self) -> str:
        """Slurm's jobs and nodes, and the end of its log."""
        asked = (("scontrol", "-o", "show", "jobs"), ("sinfo", "-N", "-o", "%N %T %E"))
        log = (self.slurm.folder / "log" / "slurmctld.log").read_text(encoding="utf-8")
        states = "".join(self.slurm.ask(*words).stdout for words in asked)
        return f"{states}{log[-LOG_CHARACTERS:]}{self.log()}"

    def log(self) -> str:
        """What Slurm's programs printed."""
        path = self.folder / "slurm.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""


def program(folder: Path, name: str, *arguments: str) -> Path:
    """Write the script that Slurm starts: it runs without PATH."""
    path = folder / name
    words = (sys.executable, "-m", "costopt", "daemon", "slurm", *arguments)
    path.write_text(f'#!/bin/sh\nexec >>{folder}/slurm.log 2>&1\nexec {" ".join(words)} "$1"\n')
    path.chmod(0o755)
    return path


@contextmanager
def burst_cloud(
    folder: Path, market: Mapping[str, States] = MARKET, more: Sequence[str] = ()
) -> Iterator[BurstCloud]:
    """A cluster of one node, with a partition ``burst`` of four in the cloud; no daemon runs."""
    for name in ("node.py", "node.yaml"):
        shutil.copy(EXAMPLE / name, folder)
    write_history(history(market), folder / "market.parquet")
    server = ("--server", f"unix:{folder}/state/daemon.sock")
    template = ("--template", str(folder / "node.yaml"), "--patience", "20s")
    resume = program(folder, "resume", "resume", *server, *template)
    suspend = program(folder, "suspend", "suspend", *server)
    with ports(4) as numbers:
        settings = (
            *(
                f"NodeName=c{n} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 "
                f"Port={port} CPUs=2 RealMemory=1000 State=CLOUD"
                for n, port in enumerate(numbers, 1)
            ),
            "PartitionName=burst Nodes=c[1-4] PreemptMode=OFF MaxTime=1-00:00:00",
            f"ResumeProgram={resume}", f"SuspendProgram={suspend}", f"ResumeFailProgram={suspend}",
            "SuspendTime=5", "SuspendTimeout=10", "ResumeTimeout=120", "SuspendExcNodes=n1",
            "SlurmctldParameters=idle_on_node_suspend", "PrivateData=cloud", *more,
        )  # fmt: skip
        with slurm_cluster(nodes=1, gpus=0, partitions=(MAIN,), settings=settings) as cluster:
            cloud = BurstCloud(cluster, folder)
            try:
                yield cloud
            except AssertionError as error:
                error.add_note(cloud.shown())
                raise


@contextmanager
def ports(count: int) -> Iterator[list[int]]:
    """Ports that no other process has."""
    from contextlib import ExitStack

    from tests.support.reserved_port import reserved_port

    with ExitStack() as held:
        yield [held.enter_context(reserved_port()) for _ in range(count)]
