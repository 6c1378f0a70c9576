"""One job under one policy, live: the engine with a real ledger, real nodes and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from costopt.catalog import load_catalog
from costopt.controller.forecasts import catalog_hazard_priors, gang_hazard_per_hour
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.site import Cloud, provider_quotas
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import LedgerError, MarketError, StoreError
from costopt.domain.events import JobFailed, JobFinished, JobSubmitted
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.domain.ports import Clock
from costopt.energy import NodePowerModel
from costopt.engine.other_jobs import OtherJobs
from costopt.engine.settings import DEFAULT_COOLDOWN_S, EngineSettings
from costopt.engine.tick import Engine, TickResult
from costopt.engine.world import World
from costopt.ledger.sqlite import SqlLedger, open_sqlite_ledger
from costopt.market.hazard import LearnedHazard
from costopt.session.learned import LearnedState
from costopt.session.provenance import with_provenance
from costopt.session.release import release_all_nodes
from costopt.session.state_lock import run_lock
from costopt.session.stop_signals import InterruptibleClock, StopSignals
from costopt.strategies import build_steady
from costopt.strategies.learner import lifetime_model

LEDGER = "ledger.sqlite"
LEARNED = "learned.json"
POLL_S = 0.1
DRAIN_S = 300.0
DRAIN_WALL_S = 30.0
"""Trainers save by the wall, however fast the market's clock runs."""
REPORT_S = 600.0
REPORT_WALL_S = 60.0
"""So do agents start."""

ReadJob = Callable[[datetime], Job]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Where a run keeps its state, and how it decides; seconds are the run's clock's.

    ``account`` holds the quotas and tenants that it keeps to, besides the quotas that clouds tell.
    ``explain``: whether decisions are recorded with what else was weighed.
    """

    state_dir: Path
    tick_s: float = 60.0
    cooldown_s: float = DEFAULT_COOLDOWN_S
    account: Account = UNLIMITED
    explain: bool = False


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run that is held by this process; nobody else controls its job meanwhile."""

    job: Job
    engine: Engine
    ledger: SqlLedger
    clock: Clock
    signals: StopSignals
    market: MarketHistory | None
    learned: LearnedState
    learned_anew: str | None
    """Why the run does not know what it had learned; None where it does, or had learned nothing."""

    def raise_if_market_ended(self, result: TickResult) -> None:
        """Raise MarketError where the record is over and the job, without nodes, is not."""
        market = self.market
        if market is None or result.is_done or result.nodes or result.now < market.ends_at:
            return
        raise MarketError(
            f"market {market.name!r} ends at {market.ends_at:%Y-%m-%d %H:%M} UTC, and "
            f"job {self.job.name!r} is not done: nothing can be launched any more",
            hint="run it in another --state-dir on a market that lasts until its deadline; its "
            "checkpoints are kept",
        )

    def release_nodes(self, reason: str, *, save_within_s: float = 0.0) -> tuple[str, ...]:
        """Give every node back, after at most ``save_within_s`` (of the wall) for checkpoints.

        The ledger is told where it can be; a fault of it holds no node. Returns what could not be
        given back, a sentence each.
        """
        with suppress(Exception):
            self._wait_for_saves(save_within_s)
        engine, name = self.engine, self.job.name
        record = engine.journal.records[name]
        troubles = release_all_nodes(engine.world.providers, engine.settings.owner, name, record)
        # Whatever went wrong before is what the user must hear of, not this.
        with suppress(Exception):
            self.engine.stop(reason)
            self.engine.tick()
        return troubles

    def _wait_for_saves(self, within_s: float) -> None:
        if within_s <= 0:
            return
        runtime, providers = self.engine.world.runtime, self.engine.world.providers
        living = {node_id for provider in providers for node_id in self._living(provider)}
        runtime.drain(self.job, living)
        give_up_at = time.monotonic() + within_s
        while not living <= runtime.is_drained(self.job) and time.monotonic() < give_up_at:
            time.sleep(POLL_S)

    def _living(self, provider: Provider) -> list[str]:
        nodes = provider.nodes(self.engine.settings.owner)
        return [n.node_id for n in nodes if n.job == self.job.name and n.state.is_alive]


@contextmanager
def open_run(
    read_job: ReadJob,
    policy: Policy,
    cloud: Cloud,
    options: LiveOptions,
    signals: StopSignals | None = None,
) -> Iterator[LiveRun]:
    """Begin a run on ``cloud``, or go on with the one that the state directory holds.

    ``read_job`` makes the job at the cloud's present; a run that goes on keeps the clock, the
    start and the deadline with which it was submitted. ``signals`` wake the run from its sleep.
    Raises LedgerError where the job is finished, another process controls it or a daemon uses the
    state directory, StoreError where that cannot be written.
    """
    name = read_job(cloud.start_time()).name
    folder = _made(options.state_dir / "jobs" / name)
    signals = signals or StopSignals()
    with (
        run_lock(options.state_dir),
        open_sqlite_ledger(options.state_dir / LEDGER) as ledger,
        ledger.exclusive(name),
    ):
        submitted, failed = _submission(name, ledger, options)
        clock = cloud.clock(folder, anew=submitted is None)
        job = with_provenance(_as_submitted(read_job, submitted, cloud), policy)
        hazards = LearnedHazard(catalog_hazard_priors(load_catalog()))
        runtime = MailboxRuntime(
            cloud.store(folder, job),
            clock,
            speed=clock.speed,
            gang_hazard=lambda _, nodes: gang_hazard_per_hour(hazards, nodes),
            notice_s=cloud.notice_s,
        )
        if submitted is not None and failed:
            runtime.forget_failures(job)
            ledger.append(replace(submitted, at=clock.now()))
        providers = cloud.providers(clock, folder, job, runtime)
        quotas, _ = provider_quotas(providers, clock.now())
        world = World(
            providers=providers,
            runtime=runtime,
            ledger=ledger,
            clock=InterruptibleClock(clock, signals),
            machines=load_catalog(),
            powers=NodePowerModel(load_catalog()),
            hazards=hazards,
            transfers=load_catalog().transfer,
            forecasts=cloud.forecasts(),
            carbon=cloud.carbon_record(),
        )
        settings = EngineSettings(
            owner=cloud.owner,
            tick_s=options.tick_s,
            cooldown_s=options.cooldown_s,
            drain_timeout_s=max(DRAIN_S, DRAIN_WALL_S * clock.speed),
            report_timeout_s=max(REPORT_S, REPORT_WALL_S * clock.speed),
            notice_s=cloud.notice_s,
            account=replace(options.account, quotas=(*options.account.quotas, *quotas)),
            explain=options.explain,
        )
        strategy = build_steady(policy.strategy)
        learned = LearnedState(folder / LEARNED, lifetime_model(strategy), hazards)
        learned_anew = learned.forget() if submitted is None else learned.load(clock.now())
        engine = Engine([job], policy, strategy, world, settings)
        others = OtherJobs(ledger, lambda: (each for each in ledger.jobs() if each != name))
        engine.spending.include(others.bills)
        try:
            yield LiveRun(job, engine, ledger, clock, signals, cloud.market, learned, learned_anew)
        finally:
            for provider in providers:
                provider.close()


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}",
            hint="free space, or choose a --state-dir that this user may write to",
        ) from error
    return folder


def _submission(
    name: str, ledger: SqlLedger, options: LiveOptions
) -> tuple[JobSubmitted | None, bool]:
    """The job's newest submission, and whether it failed. Raises LedgerError if it finished."""
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
    return submitted, failed


def _as_submitted(read_job: ReadJob, submitted: JobSubmitted | None, cloud: Cloud) -> Job:
    if submitted is None:
        return cloud.prepare_job(read_job(cloud.start_time()))
    job = cloud.prepare_job(read_job(submitted.start_at))
    return replace(job, start_at=submitted.start_at, deadline_at=submitted.deadline_at)
