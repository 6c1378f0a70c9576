"""A month's bill of an account: what its jobs added, its commitments, and what credits paid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.commitments import Commitment
from costopt.domain.money import to_micros
from costopt.domain.price_terms import PriceTerms
from costopt.ledger.job_account import JobAccount
from costopt.ledger.node_account import NodeAccount
from costopt.ledger.node_meter import to_milliseconds


@dataclass(frozen=True, slots=True)
class ProviderUse:
    """What nodes at a provider added to the bill, and what they cost at its public prices."""

    provider: str
    usd_micros: int
    list_usd_micros: int


@dataclass(frozen=True, slots=True)
class CommitmentUse:
    """What a commitment cost, used or not, and how much of that nodes used; None where unknown."""

    commitment: Commitment
    usd_micros: int | None
    used_usd_micros: int | None

    @property
    def used_share(self) -> float | None:
        """Return the share of it that was used; None where that is unknown, or it was not due."""
        if not self.usd_micros or self.used_usd_micros is None:
            return None
        return self.used_usd_micros / self.usd_micros


@dataclass(frozen=True, slots=True)
class MonthBill:
    """What the account owes for [start, end); ``credits`` are what each paid, by its name.

    The jobs are those of one ledger: what else runs in the account is not in it.
    """

    start: datetime
    end: datetime
    providers: tuple[ProviderUse, ...]
    transfer_usd_micros: int
    commitments: tuple[CommitmentUse, ...]
    credits: Mapping[str, int]

    @property
    def usd_micros(self) -> int:
        """Return the sum of all that is known."""
        nodes = sum(each.usd_micros for each in self.providers)
        committed = sum(each.usd_micros or 0 for each in self.commitments)
        return nodes + committed + self.transfer_usd_micros

    @property
    def paid_usd_micros(self) -> int:
        """Return what remains to be paid after credits."""
        return self.usd_micros - sum(self.credits.values())


def month_bill(
    accounts: Sequence[JobAccount], terms: PriceTerms, month_at: datetime, now: datetime
) -> MonthBill:
    """Return the bill of the calendar month (UTC) that begins at ``month_at``, until ``now``.

    Credits pay for nodes and commitments of their provider in the order in which they end, from
    the first month of the ledger or of a credit on.
    """
    left = {credit.name: to_micros(credit.usd) for credit in terms.credits}
    begun = [node.launched.launched_at for each in accounts for node in each.fleet.nodes.values()]
    begun += [at for each in terms.credits if (at := each.period.begins_at) is not None]
    first = min([month_at, *begun]).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while first < month_at:
        earlier = _bill(accounts, terms, first, min(next_month(first), now), left)
        left = {name: usd - earlier.credits.get(name, 0) for name, usd in left.items()}
        first = next_month(first)
    return _bill(accounts, terms, month_at, max(month_at, min(next_month(month_at), now)), left)


def next_month(month_at: datetime) -> datetime:
    """Return the beginning of the month after that which begins at ``month_at``."""
    return (month_at + timedelta(days=32)).replace(day=1)


def _bill(
    accounts: Sequence[JobAccount],
    terms: PriceTerms,
    start: datetime,
    end: datetime,
    left: Mapping[str, int],
) -> MonthBill:
    start_ms, end_ms = to_milliseconds(start), to_milliseconds(end)
    nodes = [node for each in accounts for node in each.fleet.nodes.values()]
    nodes = [node for node in nodes if node.launched_ms < end_ms]
    commitments = tuple(_use(each, nodes, start, end) for each in terms.commitments)
    providers = tuple(
        ProviderUse(
            name,
            sum(n.usd_micros(end_ms) - n.usd_micros(start_ms) for n in mine),
            sum(n.list_usd_micros(end_ms) - n.list_usd_micros(start_ms) for n in mine),
        )
        for name in sorted({node.pool.provider for node in nodes})
        if (mine := [node for node in nodes if node.pool.provider == name])
    )
    moved = sum(
        each.transfers.usd_micros_until(end_ms) - each.transfers.usd_micros_until(start_ms)
        for each in accounts
    )
    due = _due(providers, commitments)
    return MonthBill(
        start, end, providers, moved, commitments, _credited(terms, left, due, start, end)
    )


def _use(
    commitment: Commitment, nodes: Iterable[NodeAccount], start: datetime, end: datetime
) -> CommitmentUse:
    start_ms, end_ms = to_milliseconds(start), to_milliseconds(end)
    used = 0
    for node in nodes:
        if node.pool.commitment == commitment.name:
            until, before = node.committed_usd_micros(end_ms), node.committed_usd_micros(start_ms)
            if until is None or before is None:
                return CommitmentUse(commitment, None, None)
            used += until - before
    usd, hours = commitment.usd_per_hour, commitment.period.hours_between(start, end)
    return CommitmentUse(commitment, to_micros(None if usd is None else usd * hours), used)


def _due(providers: Iterable[ProviderUse], commitments: Iterable[CommitmentUse]) -> dict[str, int]:
    due = {each.provider: each.usd_micros for each in providers}
    for use in commitments:
        name = use.commitment.pools.provider
        due[name] = due.get(name, 0) + (use.usd_micros or 0)
    return due


def _credited(
    terms: PriceTerms, left: Mapping[str, int], due: dict[str, int], start: datetime, end: datetime
) -> dict[str, int]:
    """Return what each credit pays of what is ``due`` by provider."""
    paid: dict[str, int] = {}
    for credit in terms.credits_by_end():
        if credit.period.hours_between(start, end) > 0:
            paid[credit.name] = min(left[credit.name], due.get(credit.provider, 0))
            due[credit.provider] = due.get(credit.provider, 0) - paid[credit.name]
    return paid
