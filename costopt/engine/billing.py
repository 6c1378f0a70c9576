"""Bills of nodes, and spend by job, policy, tenant and account.

What a node cost in the end follows its provider's own billing rules. Spend is computed once a tick.
It includes jobs that share the ledger with this engine's jobs and that it does not control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.account_price import listed_micros
from costopt.domain.errors import ProviderError
from costopt.domain.events import NodeBilled, NodeEnded, NodeLaunched
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.money import MICROS, to_micros
from costopt.domain.ports import Ledger
from costopt.engine.cohort import JobTerms
from costopt.engine.journal import Journal
from costopt.engine.settings import EngineSettings, World
from costopt.ledger.fold_cache import FoldState, load_fold
from costopt.ledger.job_account import JobAccount
from costopt.provider.base import Capability, Provider

PAUSE = timedelta(minutes=10)


class BillCollector:
    """Requests the bill of each node that has ended, and retries later where there is none yet.

    Until then the ledger holds the cost that follows from the observed prices.
    """

    def __init__(self, world: World, journal: Journal, settings: EngineSettings) -> None:
        self._journal = journal
        self._settings = settings
        self._sources: Mapping[str, Provider] = {
            name: provider
            for provider in world.providers
            if Capability.BILLS in provider.capabilities()
            for name in provider.names
        }
        self._ask_from: dict[str, datetime] = {}

    def collect(self, now: datetime) -> None:
        """Record every bill that is available."""
        if not self._sources:
            return
        ask_from: dict[str, datetime] = {}
        for record in self._journal.records.values():
            for launched, ended in tuple(record.unbilled.values()):
                from_at = self._ask_from.get(launched.node_id, now)
                if from_at > now:
                    ask_from[launched.node_id] = from_at
                elif not self._settle(launched, ended, now):
                    ask_from[launched.node_id] = now + PAUSE
        self._ask_from = ask_from

    def is_pending(self, job: str, since: datetime) -> bool:
        """Return whether the bill or the true end of a node that ended after ``since`` is due."""
        record = self._journal.records[job]
        return any(
            ended.ended_at > since
            and (node.node_id in record.lost or Pool.parse(ended.pool).provider in self._sources)
            for node, ended in record.unbilled.values()
        )

    def _settle(self, launched: NodeLaunched, ended: NodeEnded, now: datetime) -> bool:
        """Return whether a bill was available."""
        node = self._node(launched, ended)
        source = self._sources.get(node.pool.provider)
        if source is None:
            return False
        try:
            bill = source.bill(node)
        except ProviderError:
            bill = None
        if bill is None:
            return False
        terms, pool = self._settings.account.price_terms, Pool.parse(launched.pool)
        prices = terms.bill_prices(pool, bill.prices, ended.ended_at)
        listed = [(at, listed_micros(price)) for at, price in prices if price.why]
        self._journal.write(
            NodeBilled(
                at=now,
                job=node.job,
                node_id=node.node_id,
                pool=launched.pool,
                prices=tuple((at, to_micros(each.usd_per_hour)) for at, each in prices),
                min_billed_s=bill.min_billed_s,
                source=bill.source,
                list_prices=tuple((at, micros) for at, micros in listed if micros is not None),
            )
        )
        return True

    def _node(self, launched: NodeLaunched, ended: NodeEnded) -> Node:
        """Return the node as its provider knows it: where it was launched, at its list price."""
        listed = launched.list_micros_per_hour
        return Node(
            node_id=launched.node_id,
            owner=self._settings.owner,
            job=launched.job,
            pool=Pool.parse(launched.pool).uncommitted,
            key=launched.key,
            state=NodeState.ENDED,
            launched_at=launched.launched_at,
            usd_per_hour=(launched.micros_per_hour if listed is None else listed) / MICROS,
            ended_at=ended.ended_at,
            end_cause=ended.cause,
        )


@dataclass(frozen=True, slots=True)
class Payer:
    """The tenant against whose limits a job counts, and the policy whose limits within that tenant.
    None is unknown: such a job counts against the account alone."""

    tenant: str | None
    policy: str | None


@dataclass(frozen=True, slots=True)
class Bill:
    """What a job has cost in dollars: in total, and in the month that begins at ``month_at``."""

    payer: Payer
    usd_micros: int
    month_at: datetime
    month_usd_micros: int


OtherBills = Callable[[datetime], Iterable[Bill]]
"""Bills of the jobs in the ledger that the engine neither controls nor has closed."""


class SpendTracker:
    """Dollars by job, policy, tenant and account; jobs that were closed still count.

    A limit of a policy counts all of a tenant's jobs under policies of its name: neither an edited
    policy file nor a restarted daemon resets the month.
    """

    def __init__(
        self, journal: Journal, jobs: Mapping[str, Job], terms: Mapping[str, JobTerms]
    ) -> None:
        self._journal = journal
        self._jobs = jobs
        self._terms = terms
        self._closed: dict[str, Bill] = {}
        self._others: OtherBills = lambda _: ()
        self._now: datetime | None = None
        self._months: dict[str, int] = {}
        self._bills: tuple[Bill, ...] | None = None
        self._totals: dict[tuple[str, str | None, str | None], int] = {}

    def payer(self, job: str) -> Payer:
        """Return the tenant and policy against whose limits an open job counts."""
        return Payer(self._jobs[job].tenant, self._terms[job].policy.name)

    def include(self, others: OtherBills) -> None:
        """Count these jobs as well; they are read once a tick."""
        self._others = others

    def close(self, job: str, payer: Payer, now: datetime) -> None:
        """Store what a job has cost, before the journal forgets it."""
        self._closed[job] = bill(self._journal.accounts[job], payer, month_of(now), now)
        self._forget_totals()

    def restore(self, job: str, payer: Payer, usd_micros: int, now: datetime) -> None:
        """Count a job that was over before this month began, and is not opened."""
        self._closed[job] = Bill(payer, usd_micros, month_of(now), 0)
        self._forget_totals()

    def reopen(self, job: str) -> None:
        """Count the job from the journal again, which has opened it."""
        self._closed.pop(job, None)
        self._forget_totals()

    def usd(self, now: datetime, tenant: str | None = None) -> float:
        """Return the dollars that all jobs have cost, or those of a tenant."""
        self._turn_to(now)
        total = self._totals.get(("all", tenant, None))
        if total is None:
            jobs = self._open(tenant, None)
            total = sum(self._journal.summary(job, now).usd_micros for job in jobs)
            total += sum(each.usd_micros for each in self._billed(now, tenant, None))
            self._totals["all", tenant, None] = total
        return total / MICROS

    def month_usd(
        self, now: datetime, tenant: str | None = None, policy: str | None = None
    ) -> float:
        """Return the dollars since the calendar month (UTC) began; with ``policy``, of its jobs."""
        self._turn_to(now)
        total = self._totals.get(("month", tenant, policy))
        if total is None:
            month_at = month_of(now)
            total = sum(self._month_micros(job, now) for job in self._open(tenant, policy))
            bills = self._billed(now, tenant, policy)
            total += sum(each.month_usd_micros for each in bills if each.month_at == month_at)
            self._totals["month", tenant, policy] = total
        return total / MICROS

    def job_month_usd(self, job: str, now: datetime) -> float:
        """Return the dollars of an open job since the calendar month (UTC) began."""
        self._turn_to(now)
        return self._month_micros(job, now) / MICROS

    def _month_micros(self, job: str, now: datetime) -> int:
        if job not in self._months:
            account, month_at = self._journal.accounts[job], month_of(now)
            began = account.submitted
            if began is not None and began.at >= month_at and began.start_at >= month_at:
                self._months[job] = self._journal.summary(job, now).usd_micros
            else:
                self._months[job] = account.usd_micros_between(month_at, now)
        return self._months[job]

    def _open(self, tenant: str | None, policy: str | None) -> Iterable[str]:
        jobs = self._jobs.items()
        return (
            name
            for name, job in jobs
            if tenant in (None, job.tenant) and policy in (None, self._terms[name].policy.name)
        )

    def _billed(self, now: datetime, tenant: str | None, policy: str | None) -> Iterable[Bill]:
        if self._bills is None:
            self._bills = (*self._closed.values(), *self._others(now))
        return (
            each
            for each in self._bills
            if tenant in (None, each.payer.tenant) and policy in (None, each.payer.policy)
        )

    def _turn_to(self, now: datetime) -> None:
        if now != self._now:
            self._now = now
            self._months.clear()
            self._forget_totals()

    def _forget_totals(self) -> None:
        self._totals.clear()
        self._bills = None


def bill(account: JobAccount, payer: Payer, month_at: datetime, until: datetime) -> Bill:
    """Return a job's cost up to ``until``, and the part of it since ``month_at``."""
    month_ends_at = month_of(month_at + timedelta(days=32))
    in_month = account.usd_micros_between(month_at, min(until, month_ends_at))
    return Bill(payer, account.summary(until).usd_micros, month_at, in_month)


def month_of(now: datetime) -> datetime:
    """Return the instant at which the calendar month (UTC) of ``now`` began."""
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


class OtherJobs:
    """Follows the jobs that ``names`` returns: runs of other processes, present or former, and jobs
    that can no longer be read. The figures of a job that remains among them are not read again."""

    def __init__(self, ledger: Ledger, names: Callable[[], Iterable[str]]) -> None:
        self._ledger = ledger
        self._names = names
        self._known: dict[str, FoldState] = {}

    def bills(self, now: datetime) -> tuple[Bill, ...]:
        """Return the bill of each job that ever began, by the ledger's current state.

        Raises LedgerError.
        """
        folds = {
            name: load_fold(self._ledger, name, self._known.get(name)) for name in self._names()
        }
        self._known = {name: fold for name, fold in folds.items() if fold is not None}
        return tuple(_bill(fold, now) for fold in self._known.values())


def _bill(known: FoldState, now: datetime) -> Bill:
    """Bill until now, or until the job's last event where its clock is ahead (another replay)."""
    submitted = known.account.submitted
    payer = Payer(None, None) if submitted is None else Payer(submitted.tenant, submitted.policy)
    return bill(known.account, payer, month_of(now), max(now, known.last_at))
