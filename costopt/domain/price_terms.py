"""The one place that turns quoted prices into the account's: of offers, nodes, bills, forecasts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from costopt.domain.account_price import AccountPrice, CommitmentKind
from costopt.domain.commitments import Commitment, Credit, Discount, PrivatePrice
from costopt.domain.estimate import Basis, Estimate, Series
from costopt.domain.fleet import Node
from costopt.domain.market import NEVER_INTERRUPTED, CapacityType, Offer, Pool

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """The terms of an account: at most one private price and one discount apply to a pool at a
    time, as files are refused otherwise, so their order does not matter."""

    prices: tuple[PrivatePrice, ...] = ()
    discounts: tuple[Discount, ...] = ()
    commitments: tuple[Commitment, ...] = ()
    credits: tuple[Credit, ...] = ()

    @property
    def change_prices(self) -> bool:
        """Return whether any price differs from the listed one."""
        return bool(self.prices or self.discounts or self.commitments)

    def credits_by_end(self) -> list[Credit]:
        """Return the credits in the order in which they are used: what ends first goes first."""
        return sorted(self.credits, key=lambda each: (each.period.last_day or date.max, each.name))

    def notes(self, now: datetime) -> Iterator[str]:
        """Yield a sentence on each of the terms that is over."""
        kinds: tuple[tuple[str, Sequence[PrivatePrice | Discount | Commitment | Credit]], ...] = (
            ("price", self.prices),
            ("discount", self.discounts),
            ("commitment", self.commitments),
            ("credit", self.credits),
        )
        for kind, terms in kinds:
            for each in terms:
                ends_at = each.period.ends_at
                if ends_at is not None and ends_at <= now:
                    yield f"your {kind} {each.name} ended on {each.period.last_day}"

    def commitment(self, pool: Pool) -> Commitment | None:
        """Return the commitment that pays for the pool's nodes, None where none does."""
        name = pool.commitment
        return next((each for each in self.commitments if each.name == name), None)

    def price(self, pool: Pool, list_usd: float | None, at: datetime) -> AccountPrice | None:
        """Return what a node of the pool costs at ``at``; None where that is unknown.

        A commitment that is not in force covers nothing: its nodes cost what others do.
        """
        commitment = self.commitment(pool)
        own = self._uncommitted(pool.uncommitted, list_usd, at)
        if commitment is None or not commitment.period.holds(at):
            return own
        covered = commitment.covered_share(pool)
        if covered < 1 and own is None:
            return None
        contracted = None if own is None else own.usd_per_hour
        share = commitment.share_usd_per_hour(pool)
        return AccountPrice(
            usd_per_hour=commitment.marginal_usd_per_hour
            if covered >= 1
            else (1 - covered) * (contracted or 0.0),
            list_usd_per_hour=list_usd,
            contracted_usd_per_hour=contracted,
            committed_usd_per_hour=contracted if share is None else share,
            commitment=commitment.kind,
            why=_covered_text(commitment, covered),
        )

    def _uncommitted(self, pool: Pool, list_usd: float | None, at: datetime) -> AccountPrice | None:
        """Return the price by private prices and discounts alone."""
        for own in self.prices:
            if own.pools.matches(pool) and own.period.holds(at):
                why = f"your price {own.name}"
                return AccountPrice(own.usd_per_hour, list_usd, own.usd_per_hour, why=why)
        if list_usd is None:
            return None
        for less in self.discounts:
            if less.pools.matches(pool) and less.period.holds(at):
                usd = list_usd * (1 - less.percent / 100)
                why = f"your discount {less.name}, {less.percent:g} %"
                return AccountPrice(usd, list_usd, usd, why=why)
        return AccountPrice(list_usd, list_usd, list_usd)

    def changes_at(self, pool: Pool) -> list[datetime]:
        """Return the instants at which its terms begin or end, ascending."""
        commitment, own = self.commitment(pool), pool.uncommitted
        rules: tuple[PrivatePrice | Discount, ...] = (*self.prices, *self.discounts)
        periods = [each.period for each in rules if each.pools.matches(own)]
        periods += [] if commitment is None else [commitment.period]
        ends = (at for each in periods for at in (each.begins_at, each.ends_at))
        return sorted({at for at in ends if at is not None})

    def offers(
        self, listed: Iterable[Offer], nodes: Iterable[Node], now: datetime
    ) -> tuple[Offer, ...]:
        """Return the offers at the account's prices, and beside each on-demand offer that a
        commitment covers, one for what is free of it.

        ``nodes`` are those of the account that live, and hold what they use of commitments.
        """
        listed = tuple(listed)
        covered = [node.pool for node in nodes if node.pool.commitment]
        if not self.change_prices and not covered:
            return listed
        free = {each.name: each.quantity for each in self.commitments}
        for pool in covered:
            commitment = self.commitment(pool)
            if commitment is not None:
                free[commitment.name] -= commitment.load(pool)
        priced = tuple(self._priced(offer, offer, now) for offer in listed)
        committed = tuple(self._committed(listed, free, now))
        # Nodes of a commitment that has ended cost what others do.
        ended = {*covered} - {offer.pool for offer in committed}
        left = (
            self._priced(replace(offer, pool=pool, nodes_available=0), offer, now)
            for pool in sorted(ended)
            for offer in listed
            if offer.pool == pool.uncommitted
        )
        return (*priced, *committed, *left)

    def _committed(
        self, listed: Sequence[Offer], free: Mapping[str, float], now: datetime
    ) -> Iterator[Offer]:
        """Yield what is free of each commitment that has not ended."""
        by_provider = {o.pool for o in listed if o.pool.capacity_type is CapacityType.RESERVED}
        for commitment in self.commitments:
            ends_at = commitment.period.ends_at
            if ends_at is not None and ends_at <= now:
                continue
            is_reservation = commitment.kind is CommitmentKind.RESERVATION
            for offer in listed:
                load = commitment.load(offer.pool)
                if not commitment.pools.matches(offer.pool) or load <= 0:
                    continue
                # What the provider itself says of the account's reservations counts.
                if (
                    is_reservation
                    and offer.pool.with_capacity_type(CapacityType.RESERVED) in by_provider
                ):
                    continue
                left = math.floor(free[commitment.name] / load + ROUNDING)
                known = offer.nodes_available
                if known is not None and not is_reservation:
                    left = min(left, known)
                found = replace(
                    offer,
                    pool=offer.pool.committed_to(commitment.name),
                    hazard_per_hour=NEVER_INTERRUPTED,
                    nodes_available=max(0, left),
                    from_at=commitment.period.begins_at,
                    until_at=ends_at,
                )
                # A commitment that is still to begin is offered at the price of then.
                yield self._priced(found, offer, max(now, commitment.period.begins_at or now))

    def _priced(self, offer: Offer, listed: Offer, at: datetime) -> Offer:
        """Return ``offer`` at the account's price, which follows from that of ``listed``."""
        known = listed.price_usd_per_hour
        price = self.price(offer.pool, None if known is None else known.value, at)
        if price is None or not price.why:
            return offer
        changed = [edge for edge in self.changes_at(offer.pool) if edge <= at]
        estimate = _estimate(price, known, changed[-1:])
        if known is not None and self.price(offer.pool, None, at) is not None:
            # What does not follow from the list price does not age with it.
            estimate = Estimate.exact(price.usd_per_hour, Basis.LISTED, estimate.source)
        return replace(offer, price_usd_per_hour=estimate, account_price=price, unknown_because="")

    def node(self, node: Node, pool: Pool) -> Node:
        """Return a node that the provider confirms, as one of ``pool`` at the account's price."""
        price = self.price(pool, node.usd_per_hour, node.launched_at)
        if price is None or (not price.why and pool == node.pool):
            return node
        return replace(node, pool=pool, usd_per_hour=price.usd_per_hour, account_price=price)

    def bill_prices(
        self, pool: Pool, billed: Sequence[tuple[datetime, float]], until: datetime
    ) -> tuple[tuple[datetime, AccountPrice], ...]:
        """Return what a provider's list prices, each from an instant on, cost the account."""
        edges = [at for at in self.changes_at(pool) if billed[0][0] < at < until]
        found = []
        for at in sorted({*(at for at, _ in billed), *edges}):
            usd = [usd for begin, usd in billed if begin <= at][-1]
            price = self.price(pool, usd, at)
            assert price is not None
            found.append((at, price))
        return tuple(found)

    def forecasts(
        self, known: Mapping[Pool, Series], offers: Iterable[Offer], now: datetime, until: datetime
    ) -> Mapping[Pool, Series]:
        """Return forecasts of list prices at the account's terms, and one for each other offer
        whose terms change before ``until``."""
        if not self.change_prices:
            return known
        found = dict(known)
        for offer in offers:
            edges = [at for at in self.changes_at(offer.pool) if now < at < until]
            series, price = known.get(offer.pool), offer.account_price
            quoted = offer.price_usd_per_hour
            usd = price.list_usd_per_hour if price else quoted.value if quoted else None
            if series is None and (not edges or usd is None):
                continue
            at = sorted({*((now,) if series is None else series.at), *edges})
            listed = [usd if series is None else series.value(each) for each in at]
            paid = [
                self.price(offer.pool, each, then) for each, then in zip(listed, at, strict=True)
            ]
            values = tuple(each.usd_per_hour for each in paid if each is not None)
            source = "your prices" if series is None else f"{series.source}, at your prices"
            found[offer.pool] = Series(tuple(at), values, source)
        return found


def _covered_text(commitment: Commitment, covered: float) -> str:
    kind = commitment.kind.value.replace("_", " ")
    share = "" if covered >= 1 else f" for {covered:.0%}"
    return f"covered{share} by {kind} {commitment.name}, paid for whether it is used or not"


def _estimate(
    price: AccountPrice, listed: Estimate | None, changed: Sequence[datetime]
) -> Estimate:
    """Return the account's price with its provenance; what scales with the list keeps its interval
    and its age, unless the terms changed later."""
    usd = price.usd_per_hour
    if listed is None:
        return Estimate.exact(usd, Basis.LISTED, price.why)
    source = f"{listed.source}; listed ${listed.value:,.4f}, {price.why}: ${usd:,.4f}"
    observed = [at for at in (listed.observed_at, *changed) if at is not None]
    observed_at = None if listed.observed_at is None else max(observed)
    factor = usd / listed.value if listed.value > 0 else 1.0
    low, high = min(usd, listed.low * factor), max(usd, listed.high * factor)
    return Estimate(usd, low, high, listed.basis, source, observed_at)
