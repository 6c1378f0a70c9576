"""Nodes and resources that no ledger accounts for, and jobs without a controller.

An orphan is a node or another resource in a cloud with our owner tag that no ledger accounts for.
The nodes of a job may keep running after the last process that controlled it has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from costopt.controller.account_site import connect_account
from costopt.controller.market_clock import load_market_clock
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.simulated_site import connect_simulator
from costopt.controller.state_dir import CLOCK, STORE, run_lock
from costopt.domain.account import Account
from costopt.domain.errors import LedgerError
from costopt.domain.events import NodeEnded, TerminateIntended
from costopt.domain.fleet import EndCause, Node
from costopt.domain.history import MarketHistory
from costopt.domain.ports import Ledger
from costopt.engine.loop import WallClock
from costopt.ledger.base import DurableLedger
from costopt.ledger.job_record import JobRecord
from costopt.ledger.sql_ledger import SqlLedger
from costopt.provider.base import Capability, OrphanedResource, Provider
from costopt.store.folder import FileStore


@dataclass(frozen=True, slots=True)
class Orphan:
    """``thing`` is a node or another resource, ``why`` why no ledger accounts for it."""

    thing: Node | OrphanedResource
    why: str

    @property
    def kind(self) -> str:
        """ "node", or the provider's word."""
        return "node" if isinstance(self.thing, Node) else self.thing.kind

    @property
    def name(self) -> str:
        """As the provider calls it."""
        return self.thing.node_id if isinstance(self.thing, Node) else self.thing.name

    @property
    def place(self) -> str:
        """The pool, or "provider/region"."""
        return str(self.thing.pool) if isinstance(self.thing, Node) else self.thing.place

    @property
    def since(self) -> datetime | None:
        """When it was made; None where the provider does not say."""
        if isinstance(self.thing, Node):
            return self.thing.launched_at
        return self.thing.created_at


def read_records(ledgers: Iterable[Ledger], job: str | None = None) -> Mapping[str, JobRecord]:
    """What the ledgers hold of every job, or of one. Raises LedgerError."""
    records: dict[str, JobRecord] = {}
    for ledger in ledgers:
        for recorded in ledger.events(job):
            name = recorded.event.job
            records.setdefault(name, JobRecord(name)).apply(recorded.event)
    return records


def find_orphans(
    provider: Provider,
    owner: str,
    records: Mapping[str, JobRecord],
    now: datetime,
    grace_s: float,
    abandoned: Collection[str] = frozenset(),
) -> tuple[Orphan, ...]:
    """Things with the owner's tag, older than the grace time, that no ledger answers for.

    A node is answered for while the ledger says that it lives, or that its launch may still be
    under way, unless its job is among the ``abandoned`` ones, which no process controls. A leftover
    that serves a job is, as long as the job is not over. Raises ProviderError.
    """
    oldest = now - timedelta(seconds=grace_s)
    found: list[Orphan] = []
    for node in provider.nodes(owner):
        why = orphan_reason(node, records)
        if not why and node.job in abandoned:
            why = f"no process controls job {node.job!r}"
        if node.state.is_alive and node.launched_at <= oldest and why:
            found.append(Orphan(node, why))
    if Capability.ORPHANED_RESOURCES in provider.capabilities():
        for leftover in provider.orphaned_resources(owner):
            why = _why_left(leftover, records)
            old = leftover.created_at is None or leftover.created_at <= oldest
            if old and why:
                found.append(Orphan(leftover, why))
    return tuple(found)


def release_orphan(provider: Provider, orphan: Orphan) -> None:
    """Terminate the node or delete the resource. Raise ProviderError."""
    if isinstance(orphan.thing, Node):
        provider.terminate(orphan.thing.node_id)
    else:
        provider.delete_resource(orphan.thing)


def orphan_reason(node: Node, records: Mapping[str, JobRecord]) -> str:
    """Return why no ledger accounts for a node; "" if one does."""
    record = records.get(node.job)
    if record is None:
        return f"the ledger knows of no job {node.job!r}"
    if node.node_id in record.live or node.key in record.intents:
        return ""
    if node.node_id in record.known:
        return "it runs, and by the ledger it has ended"
    return f"the ledger of job {node.job!r} does not hold it"


def _why_left(leftover: OrphanedResource, records: Mapping[str, JobRecord]) -> str:
    record = records.get(leftover.job)
    if not leftover.serves_job:
        return "no node uses it"
    if record is None:
        return f"the ledger knows of no job {leftover.job!r}"
    if record.over:
        return f"job {leftover.job!r} is over"
    return ""


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


@contextmanager
def abandoned_jobs(ledgers: Mapping[Path, DurableLedger]) -> Iterator[frozenset[str]]:
    """The jobs with living nodes or launches under way that no process controls.

    ``ledgers`` are by their state directory.
    No process begins to control them while the context lasts. A job that cannot be locked, for
    whatever reason, counts as controlled. Raises LedgerError where a ledger cannot be read.
    """
    records = read_records(ledgers.values())
    names = {name for name, record in records.items() if record.live or record.intents}
    controlled: set[str] = set()
    with ExitStack() as held:
        for state_dir, ledger in ledgers.items():
            mine = names.intersection(ledger.jobs())
            try:
                held.enter_context(run_lock(state_dir))
            except LedgerError:
                controlled |= mine
                continue
            controlled |= {job for job in mine if not _is_taken(held, ledger, job)}
        yield frozenset(names - controlled)


def record_release(ledgers: Sequence[DurableLedger], node: Node, now: datetime, why: str) -> None:
    """Write to the ledgers in which the node lives that it was terminated. Raises LedgerError."""
    for ledger in ledgers:
        record = read_records([ledger], node.job).get(node.job)
        if record is None or node.node_id not in record.live:
            continue
        pool = record.live[node.node_id].pool
        ledger.append(
            TerminateIntended(at=now, job=node.job, node_id=node.node_id, reason=why),
            NodeEnded(
                at=now,
                job=node.job,
                node_id=node.node_id,
                pool=pool,
                ended_at=now,
                cause=EndCause.RELEASED,
            ),
        )


def _is_taken(held: ExitStack, ledger: DurableLedger, job: str) -> bool:
    try:
        held.enter_context(ledger.exclusive(job))
    except LedgerError:
        return False
    return True
