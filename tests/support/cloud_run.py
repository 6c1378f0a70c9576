"""``costopt run`` of a tiny job on a test cloud, whose nodes are processes here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costopt.domain import events as ev
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support import forked_commands, slowed_example
from tests.support.aws import s3_trainer
from tests.support.forked_commands import ForkedCommand
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.node_folder import ROOT, variables

EXAMPLE = ROOT / "examples" / "finetune"
JOB = """
kind: job
version: 1
name: tiny
work: {{amount: {steps}, unit: steps}}
deadline: 8h
resources: {{gpu_models: [{gpu_model}]}}
throughput: {{points: [{{gpu: {gpu_model}, gpus: 1, units_per_s: 0.05}}]}}
checkpoint: {{uri: saves, size_gib: 0.004, save: 10s, restore: 2m, interval: auto}}
startup: 3m
run: [sh, -c, "exec '{python}' train.py {steps} {pace_s} '{hold}'"]
"""
POLICY = """
kind: policy
version: 1
name: eager
risk: {reserve: 10m}
strategy: greedy_spot
limits: {max_price_age: 1h, capacity_types: [spot, on_demand]}
"""


def hold_of(job: Path) -> Path:
    """While this file is there, the trainer of the job in this folder does not finish."""
    return job.parent / "hold"


def write_job(job: Path, gpu_model: str, steps: int, pace_s: float = 0.1) -> None:
    """A new folder with a job whose trainer needs no torch, and a policy that prefers spot."""
    job.mkdir()
    names = {"gpu_model": gpu_model, "python": sys.executable, "hold": hold_of(job)}
    (job / "job.yaml").write_text(JOB.format(steps=steps, pace_s=pace_s, **names))
    (job / "policy.yaml").write_text(POLICY)
    shutil.copy(s3_trainer.__file__, job / "train.py")


def write_example(job: Path, steps: int) -> None:
    """The example in place of the tiny job, cut short and slow while it is held."""
    ignored = shutil.ignore_patterns("output", "__pycache__")
    shutil.copytree(EXAMPLE, job, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(slowed_example.__file__, job)
    text = (job / "job.yaml").read_text().replace("450", str(steps)).replace('", "0.2"]', '", "0"]')
    text = text.replace("deadline: 5h", "deadline: 14h")
    held = f'slowed_example.py, "{hold_of(job)}"'
    (job / "job.yaml").write_text(text.replace("[python, train.py", f"[python, {held}"))


@dataclass(frozen=True)
class CloudRun:
    """A folder with the job, its account and its state; ``environment`` leads to the cloud."""

    folder: Path
    environment: Mapping[str, str] = field(kw_only=True)

    @property
    def hold(self) -> Path:
        """While this file is there, the trainer does not finish."""
        return hold_of(self.folder / "job")

    @contextmanager
    def controlled(self) -> Iterator[subprocess.Popen[str]]:
        """The command as a user starts it, killed at the end."""
        command = [*self.command("run", "job/job.yaml"), "--policy", "job/policy.yaml"]
        words = [*command, "--tick", "1", "--apply"]
        process = ForkedCommand(words, self.folder, variables(**self.environment))
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def printed(self, job: str, node_id: str) -> str:
        """What ``costopt logs`` tells of a node, from the store alone."""
        words = self.command("logs", job, "--node", node_id)
        environment = variables(**self.environment)
        done = forked_commands.run(words, self.folder, environment, PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, *words: str) -> list[str]:
        """A command of ``costopt`` that reads the account and the state."""
        start = ["-m", "costopt", *words]
        return [*start, "--account", "account.yaml", "--state-dir", "state"]

    def of(self, kind: type[Any]) -> list[Any]:
        """The job's events of one kind."""
        path = self.folder / "state" / "ledger.sqlite"
        if not path.exists():
            return []
        with open_sqlite_ledger(path, create=False) as ledger:
            return [r.event for r in ledger.events() if isinstance(r.event, kind)]

    def trains(self) -> bool:
        """Whether the held example has made a step, and the controller knows that it trains."""
        return bool(self.hold.read_text()) and bool(self.of(ev.TrainingStarted))

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Poll; what the nodes said when time is up."""
        try:
            wait_until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def log(self) -> str:
        """What the nodes had to say."""
        logs = sorted(self.folder.glob("disks/*/boot.log"))
        logs += sorted(self.folder.glob("disks/*/units/*.log"))
        return "\n".join(f"{path}:\n{path.read_text()}" for path in logs)
