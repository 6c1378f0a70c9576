"""The clouds in which a reconciliation looks for what nobody answers for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from costopt.controller.account_site import connect_account
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.simulated_site import CLOCK, STORE, connect_simulator, load_market_clock
from costopt.domain.account import Account
from costopt.domain.history import MarketHistory
from costopt.engine.loop import WallClock
from costopt.ledger.sql_ledger import SqlLedger
from costopt.provider.base import Provider
from costopt.store.folder import FileStore


@dataclass(frozen=True, slots=True)
class ReconcileTarget:
    """A provider, the tag of what is ours in it, and its present."""

    provider: Provider
    owner: str
    now: datetime


@contextmanager
def account_targets(account: Account, names: tuple[str, ...]) -> Iterator[list[ReconcileTarget]]:
    """The account's providers. Raises SpecError, ProviderError."""
    clock = WallClock()
    providers = connect_account(account, names, clock)
    try:
        yield [ReconcileTarget(provider, account.owner, clock.now()) for provider in providers]
    finally:
        for provider in providers:
            provider.close()


@contextmanager
def simulated_targets(
    state_dir: Path,
    ledger: SqlLedger,
    market: MarketHistory,
    owner: str,
    held_jobs: Collection[str] = (),
) -> Iterator[list[ReconcileTarget]]:
    """The simulated cloud of each job of a state directory, with its nodes that are processes.

    The caller controls ``held_jobs``. Raises LedgerError where another job has a controller, for
    that one answers for its nodes.
    """
    with ExitStack() as held:
        clouds: list[ReconcileTarget] = []
        for folder in sorted((state_dir / "jobs").glob("*/nodes")):
            job = folder.parent
            if (job / CLOCK).exists():
                if job.name not in held_jobs:
                    held.enter_context(ledger.exclusive(job.name))
                cloud = _simulated(job, market, owner)
                held.callback(cloud.provider.close)
                clouds.append(cloud)
        yield clouds


def _simulated(job: Path, market: MarketHistory, owner: str) -> ReconcileTarget:
    clock = load_market_clock(job / CLOCK, market.starts_at, 1.0)
    runtime = MailboxRuntime(FileStore(job / STORE), clock, speed=clock.speed)
    provider = connect_simulator(market, clock, job, runtime)
    return ReconcileTarget(provider, owner, clock.now())
