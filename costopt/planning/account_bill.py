"""What a plan changes in the account's bill, beside list prices and what is committed anyhow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.account import Account
from costopt.domain.market import Offer, Pool
from costopt.domain.plan import Allocation
from costopt.formatting import percent_text, usd_text
from costopt.planning.quotes import QuoteSet


@dataclass(frozen=True, slots=True)
class PlannedUse:
    """The part of a commitment that a plan uses, of its quantity while the plan lasts."""

    name: str
    share: float
    usd: float | None


@dataclass(frozen=True, slots=True)
class PlannedBill:
    """Dollars of the planned node-hours: at list prices, None where one is unknown, and what they
    add to the bill. ``credited_usd`` is by credit."""

    list_usd: float | None
    added_usd: float
    commitments: tuple[PlannedUse, ...]
    credited_usd: Mapping[str, float]


def planned_bill(
    allocations: Iterable[Allocation], offers: Iterable[Offer], account: Account
) -> PlannedBill | None:
    """Return the bill of a plan; None where the account has no terms, or nothing is planned."""
    terms, used = account.price_terms, tuple(allocations)
    if not used or not (terms.change_prices or terms.credits):
        return None
    by_pool = {offer.pool: offer for offer in offers}
    start_at = min(each.start_at for each in used)
    end_at = max(each.end_at for each in used)
    listed = [_list_usd(each, by_pool) for each in used]
    added = {each: each.node_hours * _usd_per_hour(each.pool, by_pool) for each in used}
    return PlannedBill(
        list_usd=None if None in listed else sum(usd for usd in listed if usd is not None),
        added_usd=sum(added.values()),
        commitments=tuple(_uses(used, by_pool, account, start_at, end_at)),
        credited_usd=_credited(added, account, start_at),
    )


def term_notes(seen: QuoteSet, account: Account) -> Iterator[str]:
    """Yield which terms of the account are over, and how many prices the others change."""
    terms = account.price_terms
    yield from terms.notes(seen.now)
    if terms.change_prices:
        offers = terms.offers(seen.offers, (), seen.now)
        changed = sum(offer.account_price is not None for offer in offers)
        yield f"your terms set the price of {changed} of {len(offers)} offers"


def bill_notes(
    allocations: Iterable[Allocation], seen: QuoteSet, account: Account
) -> Iterator[str]:
    """Yield what a plan adds to the account's bill, in sentences; none without terms."""
    offers = account.price_terms.offers(seen.offers, (), seen.now)
    bill = planned_bill(allocations, offers, account)
    if bill is None:
        return
    listed = "unknown" if bill.list_usd is None else usd_text(bill.list_usd)
    yield (
        f"the planned node-hours cost {listed} at list prices and add "
        f"{usd_text(bill.added_usd)} to your bill"
    )
    for use in bill.commitments:
        usd = "an unknown part" if use.usd is None else usd_text(use.usd)
        yield (
            f"they use {percent_text(use.share)} of {use.name} while they run, {usd} that you pay "
            "whether it is used or not"
        )
    for name, paid in bill.credited_usd.items():
        yield f"credit {name} pays {usd_text(paid)} of it, if nothing else has used it up"


def _uses(
    used: Iterable[Allocation],
    by_pool: Mapping[Pool, Offer],
    account: Account,
    start_at: datetime,
    end_at: datetime,
) -> Iterator[PlannedUse]:
    used = tuple(used)
    for commitment in account.price_terms.commitments:
        mine = [each for each in used if each.pool.commitment == commitment.name]
        hours = commitment.period.hours_between(start_at, end_at)
        if not mine or not hours:
            continue
        prices = [by_pool[each.pool].account_price for each in mine]
        parts = [
            None
            if price is None or price.committed_usd_per_hour is None
            else price.committed_usd_per_hour * each.node_hours
            for price, each in zip(prices, mine, strict=True)
        ]
        held = sum(commitment.load(each.pool) * each.node_hours for each in mine)
        usd = None if None in parts else sum(part for part in parts if part is not None)
        yield PlannedUse(commitment.name, held / (commitment.quantity * hours), usd)


def _credited(
    added: Mapping[Allocation, float], account: Account, start_at: datetime
) -> dict[str, float]:
    """Return what each credit in force pays, the one that ends first before the others."""
    left: dict[str, float] = {}
    for each, usd in added.items():
        left[each.pool.provider] = left.get(each.pool.provider, 0.0) + usd
    paid: dict[str, float] = {}
    for credit in account.price_terms.credits_by_end():
        if credit.period.holds(start_at) and left.get(credit.provider):
            paid[credit.name] = min(credit.usd, left[credit.provider])
            left[credit.provider] -= paid[credit.name]
    return paid


def _list_usd(each: Allocation, by_pool: Mapping[Pool, Offer]) -> float | None:
    price = by_pool[each.pool].account_price
    usd = _usd_per_hour(each.pool, by_pool) if price is None else price.list_usd_per_hour
    return None if usd is None else usd * each.node_hours


def _usd_per_hour(pool: Pool, by_pool: Mapping[Pool, Offer]) -> float:
    price = by_pool[pool].price_usd_per_hour
    assert price is not None
    return price.value
