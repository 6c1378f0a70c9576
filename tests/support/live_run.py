"""``costopt run`` as a user starts it, in a folder of its own, with a market typed for the test."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from costopt.domain import events as ev
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import Pool
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.market.history_file import write_history
from tests.support import forked_commands
from tests.support.forked_commands import ForkedCommand
from tests.support.node_folder import ROOT, NodeFolder, variables

STEPPER = ROOT / "tests" / "support" / "counting_trainer.py"
T0 = datetime(2026, 1, 5, tzinfo=UTC)
SPEED = 300
LASTS_H = 240.0
"""Market time goes on by the wall, also on a machine that does many other things."""
PATIENCE_S = 300.0
"""Far more than anything takes: only what never comes to pass is not waited for."""
States = tuple[tuple[float, int | None, float | None], ...]

CALM: dict[str, States] = {"a/g4dn.xlarge/spot": ((0, 4, 0.2),)}
UNINTERRUPTIBLE: dict[str, States] = {"a/g4dn.xlarge/on_demand": ((0, 8, 0.526),)}

PLAIN = "kind: policy\nversion: 1\nname: plain\nstrategy: greedy_spot\n"
"""Takes spot where there is any, at once: where waiting may pay, a slow machine makes runs wait."""


def history(pools: Mapping[str, States], hours: float = LASTS_H) -> MarketHistory:
    """Pools of us-east-1 as zone/type/capacity type → (seconds, nodes, price)."""
    ends_at = T0 + timedelta(hours=hours)
    made = {}
    for name, states in pools.items():
        pool = Pool.parse(f"aws/us-east-1/us-east-1{name}")
        moments = tuple(MarketState(T0 + timedelta(seconds=s), n, usd) for s, n, usd in states)
        made[pool] = PoolHistory(pool, moments, ends_at)
    return MarketHistory("typed", made, 60.0, "typed for a test")


@dataclass
class Place(NodeFolder):
    """A folder with a job, a market and a state directory."""

    nodes: int = 1
    steps: int = 60
    deadline: str = "5d"
    extra: str = ""
    policy: str = "plain.yaml"
    run: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def saves(self) -> Path:
        return self.folder / "saves"

    def write(self, pools: Mapping[str, States] | None = None, hours: float = LASTS_H) -> Place:
        """Write job.yaml, plain.yaml and market.parquet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_job()
        (self.folder / "plain.yaml").write_text(PLAIN)
        write_history(
            history(pools or CALM | UNINTERRUPTIBLE, hours), self.folder / "market.parquet"
        )
        return self

    def write_job(self) -> None:
        command = json.dumps(self.run or self.stepper(0.05))
        (self.folder / "job.yaml").write_text(
            "kind: job\nversion: 1\nname: tiny\n"
            f"work: {{amount: {self.steps}, unit: steps}}\ndeadline: {self.deadline}\n"
            f"resources: {{gpu_models: [T4], min_nodes: {self.nodes}, max_nodes: {self.nodes}}}\n"
            f"throughput: {{points: [{{gpu: T4, gpus: {self.nodes}, units_per_s: 0.05}}]}}\n"
            "checkpoint: {uri: saves, size_gib: 0.004, save: 10s, restore: 2m, interval: auto}\n"
            f"startup: 3m\nrun: {command}\n{self.extra}"
        )

    def stepper(self, pace_s: float) -> list[str]:
        """The command of a trainer that needs no torch, started without torchrun."""
        words = f"exec {sys.executable} {STEPPER} {self.steps} {pace_s} {self.saves}"
        return ["sh", "-c", words]

    def command(self, *arguments: str) -> list[str]:
        """A ``costopt`` command line, as Python takes it."""
        return ["-m", "costopt", *arguments]

    def run_command(self, *more: str) -> list[str]:
        """``costopt run … --apply``."""
        return self.command(
            *("run", "job.yaml", "--market", "market.parquet", "--speed", str(SPEED)),
            *("--notice", "300", "--tick", "60", "--state-dir", "state"),
            *("--policy", self.policy, "--apply", *more),
        )

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start ``costopt run`` in a process group of its own, as a shell would."""
        return ForkedCommand(self.run_command(*more), self.folder, variables(**self.environment))

    def finish(self, *more: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """``costopt run`` to its end."""
        return self.call(*self.run_command(*more)[2:], timeout_s=timeout_s)

    def call(
        self, *arguments: str, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Any ``costopt`` command to its end."""
        command = self.command(*arguments)
        environment = variables(**self.environment)
        return forked_commands.run(command, self.folder, environment, timeout_s)

    def events(self) -> list[ev.Event]:
        """The job's events so far."""
        path = self.state / "ledger.sqlite"
        if not path.exists():
            return []
        with open_sqlite_ledger(path, create=False) as ledger:
            return [recorded.event for recorded in ledger.events("tiny")]

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events() if isinstance(event, kind)]

    def status(self) -> dict[str, Any]:
        """The job's row of ``costopt status --output json``."""
        reported = self.call("status", "tiny", "--state-dir", "state", "--output", "json")
        assert reported.returncode == 0, reported.stderr
        (row,) = json.loads(reported.stdout)["rows"]
        return dict(row)


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Poll; AssertionError when time is up. Most of the machine is left to what is waited for."""
    deadline = time.monotonic() + timeout_s
    while True:
        asked_at = time.monotonic()
        if holds():
            return
        now = time.monotonic()
        assert now < deadline, f"no {what} within {timeout_s} s"
        time.sleep(min(1.0, max(0.05, 9 * (now - asked_at))))


def no_traceback(text: str) -> bool:
    """Whether a message is one for users."""
    return "Traceback" not in text and "unexpected" not in text
