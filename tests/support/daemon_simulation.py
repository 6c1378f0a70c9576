"""A daemon's life under faults in virtual time, and what became of its jobs and nodes.

Daemons that are killed are made again over the same files and the same cloud. The files lie in
memory where there is such a folder: what dies here is processes, not machines.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from costopt.controller.state_dir import LEDGER
from costopt.daemon.daemon import Daemon
from costopt.daemon.reader import TenantReader
from costopt.domain.account import Account
from costopt.domain.control import DesiredState, Mode, ProposalState
from costopt.domain.events import Event, LaunchIntended, NodeEnded, NodeLaunched
from costopt.domain.fleet import EndCause, Node
from costopt.domain.history import PoolHistory
from costopt.engine.loop import VirtualClock
from costopt.ledger.job_account import JobAccount
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.ledger.summary import JobState
from costopt.registry.registry import REGISTRY, open_registry
from tests.support.daemon_faults import (
    Fault,
    KillableLedger,
    KillableRegistry,
    KillableRuntime,
    Killed,
    KillPlan,
    UnreliableProvider,
)
from tests.support.daemon_fixtures import unhurried
from tests.support.engine_fixtures import SAFE, SPOT_A, SPOT_B, FaultyCloud, always, changing
from tests.support.market_fixtures import T0, market
from tests.support.simulated_site import OWNER, simulated_site

TICK_S = 120.0
MAX_TICKS = 400
SETTLE_TICKS = 15
LAST_HAPPENING = 120
"""A trial goes on for what happens up to this tick, so that a fault that began also ends."""
SURPLUS_TICKS = 3
"""A node more than wanted may stand for so many ticks until it is seen and given back."""
DOWN_S = (0, 600)
MEMORY = Path("/dev/shm")

TAKES: Sequence[PoolHistory] = (
    changing(SPOT_A, (0, 3, 1.0), (2400, 1, 1.0), (3600, 3, 1.0), (5400, 0, 1.0), (6600, 3, 1.0)),
    changing(SPOT_B, (0, 1, 1.2), (3000, 2, 1.2), (6000, 0, 1.2), (7200, 3, 1.2)),
    always(SAFE, 20, 3.0),
)
JOBS = {"one": 1, "two": 2}
"""Nodes of each job's gang."""
INTENTS = {11: DesiredState.PAUSED, 16: DesiredState.RUN}
"""What a person wants of job two, by the tick before which it is said."""
POLICY = """
kind: policy
version: 1
name: plain
strategy: {name: greedy_spot}
risk: {reserve: 90m}
"""


def job_document(name: str, nodes: int) -> str:
    """1.5 hours of work and 6 until the deadline: time for faults, not for being idle."""
    return (
        f"kind: job\nversion: 1\nname: {name}\ntenant: {name}\n"
        f"work: {{amount: {5400 * nodes}, unit: steps}}\ndeadline: 6h\n"
        f"resources: {{gpu_models: [V100], min_nodes: {nodes}, max_nodes: {nodes}}}\n"
        f"throughput: {{points: [{{gpu: V100, gpus: {nodes}, units_per_s: {nodes}}}]}}\n"
        f"checkpoint: {{uri: saves/{name}, size_gib: 1, save: 10s, restore: 1m, interval: 10m}}\n"
        "startup: 2m\nrun: [python, train.py]\n"
    )


class Wrong(StrEnum):
    """What must not come of any fault."""

    TWICE = "launched twice"
    UNASKED = "no intent"
    ORPHAN = "orphan"
    UNKNOWN = "node not in ledger"
    BILL = "ledger ≠ bill"
    LATE = "late"
    LOST = "work not whole"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial."""

    deaths: int
    faults: int
    wrong: tuple[Wrong, ...]


class WallClock(VirtualClock):
    """What the daemon takes for the time: ``off_s`` away from the true time."""

    def __init__(self, true: VirtualClock) -> None:
        self._true = true
        self.off_s = 0.0

    def now(self) -> datetime:
        return self._true.now() + timedelta(seconds=self.off_s)

    def sleep(self, seconds: float) -> None:
        self._true.sleep(seconds)


@dataclass
class Trial:
    """Two jobs of two tenants on a cloud that takes nodes, ticked to the end."""

    folder: Path
    fate: KillPlan = field(default_factory=KillPlan)
    faults: Sequence[Fault] = ()
    seed: int = 0
    mode: Mode = Mode.ENFORCE
    happenings: Mapping[int, Callable[[Trial], None]] = field(default_factory=dict)
    """What else comes to pass, by the tick before which it does."""

    def __post_init__(self) -> None:
        self.chances = random.Random(self.seed)
        self.clock = VirtualClock(T0)
        self.wall = WallClock(self.clock)
        self.cloud = FaultyCloud(self.clock, TAKES, 120.0)
        self.line = UnreliableProvider(
            self.cloud, self.clock, self.fate, self.faults, chances=self.chances
        )
        self.runtime = KillableRuntime(self.cloud.runtime, self.clock, self.fate)
        self.deaths = 0
        self.seen: dict[str, Node] = {}
        self.surplus: Counter[str] = Counter()
        self.wrong: list[Wrong] = []
        self.said: list[str] = []
        self.write_s = 0.0
        self.lost_events = 0
        self.daemon = self._start()

    def _start(self) -> Daemon:
        self.registry = open_registry(self.folder / REGISTRY)
        self.ledger = open_sqlite_ledger(self.folder / LEDGER)
        settings = unhurried(self.folder, self.mode, TICK_S)
        return Daemon(
            simulated_site(self.wall, self.line, self.runtime, market(*TAKES)),
            cast("Any", KillableRegistry(self.registry, self.fate)),
            cast("Any", KillableLedger(self.ledger, self.fate, self._write)),
            Account(),
            settings,
            self.said.append,
        )

    def _write(self) -> None:
        """What a write to a slow disk takes."""
        self.clock.sleep(self.write_s)

    @property
    def hours(self) -> float:
        """How long the daemons lived, and lay dead, in the jobs' time."""
        return (self.clock.now() - T0).total_seconds() / 3600

    def restart(self) -> None:
        """A daemon in place of the one that was, which was killed."""
        self.close()
        self.daemon = self._start()

    def close(self) -> None:
        """What becomes of a dead daemon's locks and files."""
        self.daemon.close()
        self.ledger.close()
        self.registry.close()

    def run(self) -> Outcome:
        """The jobs' whole life."""
        for name, nodes in JOBS.items():
            text = job_document(name, nodes)
            service = self.daemon.service
            service.submit(service.read(text, POLICY, workdir=str(self.folder), who="me"))
        for ticks in range(MAX_TICKS):
            if ticks in self.happenings:
                self.happenings[ticks](self)
            if ticks in INTENTS:
                self.registry.set_desired_state("two", INTENTS[ticks], "me", self.clock.now())
            self.step(ticks)
            if self._all_over() and not any(ticks < at <= LAST_HAPPENING for at in self.happenings):
                break
        for ticks in range(SETTLE_TICKS):
            self.step(ticks)
        self._judge()
        return Outcome(self.deaths, self.line.suffered, tuple(self.wrong))

    def step(self, ticks: int) -> None:
        """All that a daemon does between two ticks; where it dies, another one comes later."""
        try:
            self.daemon.tick()
            self.daemon.readiness.prepare()
            self.daemon.readiness.join()
            if self.mode is Mode.RECOMMEND:
                for asked in TenantReader(self.daemon.service).proposals([ProposalState.OPEN]):
                    self.daemon.service.approve(asked.id, "me")
            if ticks % 5 == 4:
                self.daemon.sweep()
        except Killed:
            self.deaths += 1
            self.restart()
            self._pass(float(self.chances.randint(*DOWN_S)))
            return
        self._pass(TICK_S)
        self._look()

    def _pass(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.line.deliver()
        self.seen |= {node.node_id: node for node in self.cloud.inner.nodes(OWNER)}

    def _look(self) -> None:
        """Whether a job has more nodes than it wants, for longer than it takes to see that."""
        for name, wanted in JOBS.items():
            staying = [
                n
                for n in TenantReader(self.daemon.service).job(name).nodes
                if not n.draining and n.interrupts_at is None
            ]
            self.surplus[name] = self.surplus[name] + 1 if len(staying) > wanted else 0
            if self.surplus[name] > SURPLUS_TICKS:
                self._found(Wrong.TWICE)

    def _all_over(self) -> bool:
        jobs = TenantReader(self.daemon.service).jobs()
        return all(job.summary.state in (JobState.FINISHED, JobState.FAILED) for job in jobs)

    def _found(self, wrong: Wrong) -> None:
        if wrong not in self.wrong:
            self.wrong.append(wrong)

    def _judge(self) -> None:
        if any(node.state.is_alive for node in self.seen.values()):
            self._found(Wrong.ORPHAN)
        for name in JOBS:
            mine = [node for node in self.seen.values() if node.job == name]
            events = [recorded.event for recorded in self.ledger.events(name)]
            self._judge_nodes(mine, events)
            self._judge_job(name, mine, events)

    def _judge_nodes(self, mine: Sequence[Node], events: Sequence[Event]) -> None:
        """Every node is in the ledger, once, with its end, and was asked for. The end of one that
        a listing left out may be corrected by another event."""
        there = sorted(node.node_id for node in mine)
        launched = sorted(e.node_id for e in events if isinstance(e, NodeLaunched))
        ended = [e for e in events if isinstance(e, NodeEnded)]
        known = sorted(e.node_id for e in ended if e.cause is not EndCause.LOST)
        if launched != there or {e.node_id for e in ended} != set(there):
            self._found(Wrong.UNKNOWN)
        if len(known) != len(set(known)):
            self._found(Wrong.UNKNOWN)
        asked = {e.key: e.nodes for e in events if isinstance(e, LaunchIntended)}
        given = Counter(node.key for node in mine)
        if any(count > asked.get(key, count) for key, count in given.items()):
            self._found(Wrong.TWICE)
        if given.keys() - asked.keys():
            self._found(Wrong.UNASKED)

    def _judge_job(self, name: str, mine: Sequence[Node], events: Sequence[Event]) -> None:
        account = JobAccount(name)
        for event in events:
            account.apply(event)
        summary = account.summary(max(self.clock.now(), *(event.at for event in events)))
        of_nodes = summary.spot_usd_micros + summary.on_demand_usd_micros
        if of_nodes != sum(_billed(node) for node in mine):
            self._found(Wrong.BILL)
        if summary.state is not JobState.FINISHED or not summary.on_time:
            self._found(Wrong.LATE)
        if summary.done_units != summary.work_units:
            self._found(Wrong.LOST)


@contextmanager
def trial(**how: Any) -> Iterator[Trial]:
    """A trial in a folder of its own."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="costopt-trial-", dir=place))
    made = Trial(folder, **how)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def _billed(node: Node) -> int:
    """Micro-dollars that the provider charges for a node."""
    if node.ended_at is None:
        return 0
    milliseconds = round((node.ended_at - node.launched_at).total_seconds() * 1000)
    return round(node.usd_per_hour * 1_000_000) * milliseconds // 3_600_000
