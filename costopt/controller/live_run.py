"""A live run of one job under one policy: the engine with a real ledger, real nodes and a clock.

Signals that ask a run to stop are held back during a tick. At its end every node of the job is
released, whatever fails meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import FrameType

from costopt.controller.controller import Controller, ControllerSettings, build_strategy
from costopt.controller.learned_state import LearnedState
from costopt.controller.live_carbon import refreshing
from costopt.controller.orphans import read_records
from costopt.controller.payload import with_provenance
from costopt.controller.site import LiveSite, ScaledClockPort, SiteConfig, provider_quotas
from costopt.controller.state_dir import LEDGER, make_state_dir, run_lock
from costopt.domain.errors import LedgerError, MarketError, failure_message
from costopt.domain.events import JobFailed, JobFinished, JobSubmitted
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import Policy
from costopt.engine.engine import Engine, TickResult
from costopt.ledger.job_record import JobRecord
from costopt.ledger.sql_ledger import SqlLedger, open_sqlite_ledger
from costopt.protocol.stop_signals import (
    handle_stop_signals,  # noqa: F401 - scripts import it from here
    install_handler,
)
from costopt.provider.base import Provider
from costopt.strategies.fault_isolation import lifetime_model

LEARNED = "learned.json"
POLL_S = 0.1
ReadJob = Callable[[datetime], Job]
Preflight = Callable[[LiveSite], None]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run that is held by this process; no other process controls its job meanwhile."""

    job: Job
    engine: Engine
    ledger: SqlLedger
    site: LiveSite
    signals: StopSignals
    learned: LearnedState
    learned_reset: str | None
    """Why the run does not know what it had learned; None where it does, or had learned nothing."""

    def raise_if_market_ended(self, result: TickResult) -> None:
        """Raise MarketError where the record is over and the job, without nodes, is not."""
        market = self.site.market
        if market is None or result.is_done or result.nodes or result.now < market.ends_at:
            return
        raise MarketError(
            f"market {market.name!r} ends at {market.ends_at:%Y-%m-%d %H:%M} UTC, and "
            f"job {self.job.name!r} is not done: nothing can be launched any more",
            hint="run it in another --state-dir on a market that lasts until its deadline; its "
            "checkpoints are kept",
            code="market_ended",
        )

    def release_nodes(self, reason: str, *, save_within_s: float = 0.0) -> tuple[str, ...]:
        """Give every node back, after at most ``save_within_s`` (of the wall) for checkpoints.

        The ledger records it if it can; a fault of it keeps no node alive. Return what could not be
        released, a sentence each.
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
    config: SiteConfig,
    state_dir: Path,
    settings: ControllerSettings,
    signals: StopSignals | None = None,
    preflight: Preflight | None = None,
) -> Iterator[LiveRun]:
    """Begin a run on the site of ``config``, or go on with the one that the state directory holds.

    ``read_job`` makes the job at the site's present; a run that goes on keeps the clock, the
    start and the deadline with which it was submitted. The account of ``settings`` holds what it
    keeps to besides the quotas that clouds report. ``signals`` wake the run from its sleep.
    ``preflight`` may refuse a job without living nodes, before anything of it is uploaded.
    Raises LedgerError where the job is finished, another process controls it or a daemon uses the
    state directory, StoreError where that cannot be written.
    """
    name = read_job(config.start_time()).name
    folder = make_state_dir(state_dir, f"jobs/{name}")
    signals = signals or StopSignals()
    with (
        run_lock(state_dir),
        open_sqlite_ledger(state_dir / LEDGER) as ledger,
        ledger.exclusive(name),
    ):
        submitted, failed = _submission(name, ledger, state_dir)
        site = config.connect(folder, fresh=submitted is None)
        with _closing(site.providers), refreshing(site):
            record = read_records([ledger], name).get(name)
            if preflight is not None and not (record and record.live):
                preflight(site)
            job = with_provenance(_as_submitted(read_job, submitted, config, site), policy)
            if submitted is not None and failed:
                site.retry(job)
                ledger.append(replace(submitted, at=site.clock.now()))
            site.upload_payload(job)
            yield _controlled(job, policy, site, ledger, settings, signals, folder, submitted)


def _controlled(
    job: Job,
    policy: Policy,
    site: LiveSite,
    ledger: SqlLedger,
    settings: ControllerSettings,
    signals: StopSignals,
    folder: Path,
    submitted: JobSubmitted | None,
) -> LiveRun:
    """The run, with what the controller before this one had learned."""
    quotas, _ = provider_quotas(site.providers, site.clock.now())
    account = replace(settings.account, quotas=(*settings.account.quotas, *quotas))
    controller = Controller(
        replace(site, clock=InterruptibleClock(site.clock, signals)),
        ledger,
        replace(settings, account=account),
        uncontrolled=lambda: (each for each in ledger.jobs() if each != job.name),
    )
    strategy = build_strategy(policy)
    learned = LearnedState(folder / LEARNED, lifetime_model(strategy), site.hazards)
    learned_reset = learned.forget() if submitted is None else learned.load(site.clock.now())
    controller.add(job, policy, strategy)
    return LiveRun(job, controller.engine, ledger, site, signals, learned, learned_reset)


@contextmanager
def _closing(providers: Iterable[Provider]) -> Iterator[None]:
    try:
        yield
    finally:
        for provider in providers:
            provider.close()


def _submission(name: str, ledger: SqlLedger, state_dir: Path) -> tuple[JobSubmitted | None, bool]:
    """The job's newest submission, and whether it failed. Raises LedgerError if it finished."""
    submitted: JobSubmitted | None = None
    failed = False
    for recorded in ledger.events(name):
        match recorded.event:
            case JobFinished():
                raise LedgerError(
                    f"job {name!r} is finished already in {state_dir}",
                    hint=f"see it with `costopt report {name} --state-dir {state_dir}`, "
                    "or run it again in another --state-dir",
                    code="finished",
                )
            case JobSubmitted() as event:
                submitted, failed = event, False
            case JobFailed():
                failed = True
    return submitted, failed


def _as_submitted(
    read_job: ReadJob, submitted: JobSubmitted | None, config: SiteConfig, site: LiveSite
) -> Job:
    if submitted is None:
        return site.prepare_job(read_job(config.start_time()))
    job = site.prepare_job(read_job(submitted.start_at))
    return replace(job, start_at=submitted.start_at, deadline_at=submitted.deadline_at)


FORCE_EXIT_COUNT = 3


class StopSignals:
    """Turns SIGINT, SIGTERM and SIGHUP into a KeyboardInterrupt between ticks.

    A tick that is cut in two may have launched what it has not noted yet. So a signal is heard
    while the run sleeps, at ``check`` and, from ``hear_at_once`` on, anywhere; the third is heard
    anywhere in any case. ``first`` is the number of the first signal. What the parent set this
    process to ignore, as nohup does with SIGHUP, stays ignored.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._count = 0
        self._unheard = False
        self._at_once = False

    @contextmanager
    def caught(self) -> Iterator[StopSignals]:
        """Listen while the context lasts; outside the main thread nothing is listened to."""
        with install_handler(self._take):
            yield self

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal arrived that was not handled yet."""
        if self._unheard:
            self._unheard = False
            raise KeyboardInterrupt

    def interrupt_immediately(self) -> None:
        """From here on the next signal is raised wherever it finds the run."""
        self._at_once = True
        self.check()

    @contextmanager
    def received(self) -> Iterator[None]:
        """Nothing is under way that a signal could cut in two."""
        before, self._at_once = self._at_once, True
        try:
            self.check()
            yield
        finally:
            self._at_once = before

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """What happens here is not to be cut in two by anything but the impatient."""
        before, self._at_once = self._at_once, False
        try:
            yield
        finally:
            self._at_once = before

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signals do
        self._count += 1
        self.first = self.first or number
        if self._at_once or self._count >= FORCE_EXIT_COUNT:
            self._unheard = False
            raise KeyboardInterrupt
        self._unheard = True


class InterruptibleClock:
    """A clock whose sleep hears stop signals."""

    def __init__(self, clock: ScaledClockPort, signals: StopSignals) -> None:
        self._clock = clock
        self._signals = signals

    @property
    def speed(self) -> float:
        """As the clock's."""
        return self._clock.speed

    def now(self) -> datetime:
        """The present, aware UTC."""
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait. Raises KeyboardInterrupt on a stop signal."""
        with self._signals.received():
            self._clock.sleep(seconds)


def release_all_nodes(
    providers: Iterable[Provider], owner: str, job: str, record: JobRecord
) -> tuple[str, ...]:
    """Return what could not be released or listed, a sentence each; () if nothing failed.

    Besides the nodes that providers list, those that live by the ledger are asked to go: a list
    may fail or be behind.
    """
    troubles: list[str] = []
    for provider in providers:
        living = {
            node_id: event.pool
            for node_id, event in record.live.items()
            if Pool.parse(event.pool).provider in provider.names
        }
        try:
            for node in provider.nodes(owner):
                if node.job == job and node.state.is_alive:
                    living[node.node_id] = str(node.pool)
                else:
                    living.pop(node.node_id, None)
        except Exception as error:  # noqa: BLE001 - whatever fails holds no node
            names = "+".join(sorted(provider.names))
            troubles.append(f"the nodes of {names} cannot be listed: {failure_message(error)}")
        for node_id, pool in living.items():
            try:
                provider.terminate(node_id)
            except Exception as error:  # noqa: BLE001
                troubles.append(f"node {node_id} in {pool} may still run: {failure_message(error)}")
    return tuple(troubles)
