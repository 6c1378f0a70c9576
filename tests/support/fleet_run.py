"""A daemon whose policy `priced` owns a cluster, and three jobs of two tenants on it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml

from costopt.domain import events as ev
from costopt.domain.market import CapacityType, Pool
from tests.support import forked_commands
from tests.support.aws import s3_trainer
from tests.support.aws.s3_trainer import SAVE_EVERY
from tests.support.cloud_run import CloudRun
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import variables

POLICY = """
kind: policy
version: 1
name: shared
strategy: {name: priced, parameters: {restart_s: 1, round_s: 1}}
"""
TENANTS = [{"name": "vision", "weight": 1}, {"name": "speech", "weight": 1}]
STEPS = 30
Changes = list[tuple[datetime, int, int]]
"""GPUs taken and left at an instant; those that are left first."""


@dataclass(frozen=True)
class FleetJob:
    """Who asks for how many GPUs, and what an hour of it is worth."""

    name: str
    tenant: str
    gpus: int
    usd_per_hour_waited: float


NODE_GPUS = 4
OTHERS_GPUS = 2
"""What others hold of the last of four nodes."""
LARGE = FleetJob("large", "vision", 3 * NODE_GPUS, 1.0)
SMALL = (FleetJob("translate", "speech", 2, 2.0), FleetJob("caption", "vision", 2, 1.0))
SHAPE = {"gpus": NODE_GPUS, "vcpus": 8, "memory_gib": 31}


@dataclass(frozen=True)
class FleetRun(CloudRun):
    """A folder with the account, its jobs and the daemon's state.

    Speeds grow with the root of the GPUs, so that a whole cluster is worth little to one job.
    """

    gpu_model: str

    def write(self, provider: str, options: Mapping[str, object], store: str) -> None:
        """The account file, the policy and the trainer."""
        account = {
            "kind": "account",
            "version": 1,
            "owner": "me",
            "store": store,
            "providers": {provider: dict(options)},
            "tenants": TENANTS,
        }
        (self.folder / "job").mkdir()
        (self.folder / "account.yaml").write_text(yaml.safe_dump(account))
        (self.folder / "job" / "policy.yaml").write_text(POLICY)
        shutil.copy(s3_trainer.__file__, self.folder / "job" / "train.py")

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """A daemon that enforces, killed at the end."""
        command = self.command("daemon", "--mode", "enforce", "--listen", "none", "--tick", "1")
        with (self.folder / "daemon.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command, "--refresh-prices", "none"],
                cwd=self.folder,
                env=variables(**self.environment),
                stdout=log,
                stderr=log,
            )
        try:
            self.wait((self.folder / "state" / "daemon.sock").exists, "the daemon")
            yield process
        finally:
            process.kill()
            process.wait()

    def submit(self, job: FleetJob) -> None:
        """Hand a job in. Its work is declared as hours, and takes seconds."""
        sizes = [size for size in (1, 2, 4, 8, 12) if size <= job.gpus]
        speeds = [{"gpu": self.gpu_model, "gpus": n, "units_per_s": 0.005 * n**0.5} for n in sizes]
        hold = self.hold if job is LARGE else self.folder / "none"
        train = f"exec '{sys.executable}' train.py {STEPS} 0.1 '{hold}' {SAVE_EVERY}"
        document = {
            "kind": "job",
            "version": 1,
            "name": job.name,
            "tenant": job.tenant,
            "work": {"amount": STEPS, "unit": "steps"},
            "resources": {
                "gpu_models": [self.gpu_model],
                "gpus": job.gpus,
                "min_gpus": 1,
                "max_gpus": job.gpus,
            },
            "throughput": {"points": speeds},
            "value": {"usd_per_hour_waited": job.usd_per_hour_waited},
            "checkpoint": {"uri": "saves", "size_gib": 0.001, "save": "5s", "restore": "30s"},
            "startup": "90s",
            "elastic": True,
            "run": ["sh", "-c", train],
        }
        path = self.folder / "job" / f"{job.name}.yaml"
        path.write_text(json.dumps(document))
        words = ("submit", str(path), "--policy", "job/policy.yaml", "--anyway")
        server = ("--server", "unix:state/daemon.sock")
        command = ["-m", "costopt", *words, *server]
        done = forked_commands.run(command, self.folder, variables(), PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr

    def gpus(self, job: FleetJob) -> int:
        """The GPUs of the job's newest gang, 0 before the first."""
        gangs = [event for event in self.of(ev.GangFormed) if event.job == job.name]
        pools = {event.node_id: event.pool for event in self.of(ev.NodeLaunched)}
        return sum(gpus_of(pools[node], NODE_GPUS) for node in gangs[-1].node_ids) if gangs else 0

    def log(self) -> str:
        said = (self.folder / "daemon.log").read_text()
        return f"{said[-6000:]}\n{super().log()}"


def share_out(run: FleetRun) -> None:
    """One job has all that is free; others come, it shrinks and goes on; all come to an end."""
    run.hold.touch()
    with run.daemon():
        run.submit(LARGE)
        run.wait(lambda: bool(run.of(ev.CheckpointCommitted)), "a save on all nodes")
        whole = run.gpus(LARGE)
        for job in SMALL:
            run.submit(job)
        run.wait(lambda: len(run.of(ev.JobFinished)) == len(SMALL), "the end of those that came")
        run.wait(lambda: 0 < run.gpus(LARGE) < whole, "the smaller gang")
        run.hold.unlink()
        run.wait(lambda: len(run.of(ev.JobFinished)) == 1 + len(SMALL), "the end of all")
        run.wait(lambda: _ended(run), "the end of all nodes")
    begun = [event.units for event in run.of(ev.TrainingStarted) if event.job == LARGE.name]
    assert len(begun) >= 2
    assert begun[-1] >= SAVE_EVERY  # the first gang may have been made whole before its save
    assert not run.of(ev.WorkLost)
    most = max_gpus_held([*run.of(ev.NodeLaunched), *run.of(ev.NodeEnded)])
    *whole_nodes, shared = sorted(most)
    assert len(whole_nodes) == 3
    assert max(most[node] for node in whole_nodes) <= NODE_GPUS, "a GPU twice"
    assert most[shared] <= NODE_GPUS - OTHERS_GPUS, "a GPU of others"


def _ended(run: FleetRun) -> bool:
    launched = {event.node_id for event in run.of(ev.NodeLaunched)}
    return sorted(launched) == sorted(event.node_id for event in run.of(ev.NodeEnded))


def gpus_of(pool: str, of_node: int) -> int:
    """The GPUs of a slice, or of a whole node: the last number of its type, if it has one."""
    numbers = re.findall(r"\d+", Pool.parse(pool).instance_type)
    return int(numbers[-1]) if numbers else of_node


def max_gpus_held(events: Iterable[Any], of_node: int = NODE_GPUS) -> dict[str, int]:
    """The most GPUs of each owned node that were held at an instant, by zone."""
    known = list(events)
    ended = {e.node_id: e.ended_at for e in known if isinstance(e, ev.NodeEnded)}
    changes: dict[str, Changes] = {}
    for event in known:
        if isinstance(event, ev.NodeLaunched) and not event.waiting:
            pool, gpus = Pool.parse(event.pool), gpus_of(event.pool, of_node)
            if pool.capacity_type is CapacityType.RESERVED:
                zone = changes.setdefault(pool.zone, [])
                zone += [(event.launched_at, 1, gpus), (ended[event.node_id], 0, -gpus)]
    most = dict.fromkeys(changes, 0)
    for name, each in changes.items():
        held = 0
        for _, _, gpus in sorted(each):
            held += gpus
            most[name] = max(most[name], held)
    return most
