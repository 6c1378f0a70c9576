"""One job under one policy, live: the engine with a real ledger, real nodes and a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from costopt.agent.runtime import MailboxRuntime
from costopt.agent.store import FileStore
from costopt.catalog import load_catalog
from costopt.domain.errors import LedgerError
from costopt.domain.events import JobFailed, JobFinished, JobSubmitted
from costopt.domain.fleet import Node
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.domain.ports import HazardModel, Provider
from costopt.energy import NodePowerModel
from costopt.engine.clock import ScaledClock
from costopt.engine.settings import Settings
from costopt.engine.tick import Engine
from costopt.engine.world import World
from costopt.ledger.sqlite import SqliteLedger, open_ledger
from costopt.market.hazard import LearnedHazard
from costopt.replay.connect import connect
from costopt.session.hazards import catalog_priors
from costopt.session.market_clock import market_clock
from costopt.strategies import build

LEDGER = "ledger.sqlite"

ReadJob = Callable[[datetime], Job]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Where a run keeps its state, and the simulated cloud it runs on.

    ``speed`` is how many seconds of market time pass in one of the wall; seconds in the other
    fields are market time. ``start_at`` is where in the record the run begins.
    """

    state_dir: Path
    market: MarketHistory
    start_at: datetime
    speed: float = 1.0
    tick_s: float = 60.0
    notice_s: float = 120.0
    cooldown_s: float = 300.0


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run that is held by this process; nobody else controls its job meanwhile."""

    job: Job
    engine: Engine
    ledger: SqliteLedger
    clock: ScaledClock
    provider: Provider

    def release_all(self) -> None:
        """Give every node back at once, without waiting for checkpoints."""
        for node in self.provider.nodes(self.engine.settings.owner):
            if node.job == self.job.name and node.state.alive:
                self.provider.terminate(node.node_id)


@contextmanager
def open_run(read_job: ReadJob, policy: Policy, options: LiveOptions) -> Iterator[LiveRun]:
    """Begin a run, or go on with the one that the state directory holds.

    ``read_job`` makes the job at the market's present; a run that goes on keeps the start and
    the deadline with which it was submitted. Raises LedgerError where the job is finished or
    another process controls it.
    """
    name = read_job(options.start_at).name
    folder = options.state_dir / "jobs" / name
    clock = market_clock(folder / "clock.json", options.start_at, options.speed)
    with open_ledger(options.state_dir / LEDGER) as ledger, ledger.exclusive(name):
        job = _as_submitted(read_job, name, ledger, clock, options)
        hazards = LearnedHazard(catalog_priors(load_catalog()))
        noticed_share = 1.0 if options.notice_s > job.checkpoint.save_s else 0.0
        runtime = MailboxRuntime(
            FileStore(folder / "store"),
            clock,
            speed=clock.speed,
            gang_hazard=lambda _, nodes: _gang_hazard_per_hour(hazards, nodes),
            noticed_share=noticed_share,
        )
        provider = connect(
            "sim",
            clock,
            {
                "market": options.market,
                "machines": load_catalog(),
                "mode": "process",
                "notice_s": options.notice_s,
                "state_dir": folder,
                "store": folder / "store",
                "runtime": runtime,
            },
        )
        world = World(
            providers=(provider,),
            runtime=runtime,
            ledger=ledger,
            clock=clock,
            machines=load_catalog(),
            powers=NodePowerModel(load_catalog(), policy.objective.carbon_signal),
            hazards=hazards,
        )
        settings = Settings(
            tick_s=options.tick_s, cooldown_s=options.cooldown_s, noticed_share=noticed_share
        )
        engine = Engine([job], policy, build(policy.strategy), world, settings)
        try:
            yield LiveRun(job, engine, ledger, clock, provider)
        finally:
            provider.close()


def _as_submitted(
    read_job: ReadJob,
    name: str,
    ledger: SqliteLedger,
    clock: ScaledClock,
    options: LiveOptions,
) -> Job:
    submitted: JobSubmitted | None = None
    failed = False
    for recorded in ledger.events(name):
        match recorded.event:
            case JobFinished():
                raise LedgerError(
                    f"job {name!r} is finished already in {options.state_dir}",
                    hint=f"see it with `costopt report {name} --state-dir {options.state_dir}`, "
                    "or run it anew in another --state-dir",
                )
            case JobSubmitted() as event:
                submitted, failed = event, False
            case JobFailed():
                failed = True
    if submitted is None:
        return read_job(options.start_at)
    if failed:
        ledger.append(replace(submitted, at=clock.now()))
    job = read_job(submitted.start_at)
    return replace(job, start_at=submitted.start_at, deadline_at=submitted.deadline_at)


def _gang_hazard_per_hour(hazards: HazardModel, nodes: tuple[Node, ...]) -> float | None:
    """Interruptions per hour of the gang; None where nothing is known of a member's pool."""
    total = 0.0
    for node in nodes:
        known = hazards.hazard_per_hour(node.pool)
        if known is None:
            return None
        total += known.value
    return total
