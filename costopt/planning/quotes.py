"""A plan's quotes: list prices, a recorded market at an instant, or the clouds' present offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from costopt.domain.account import UNLIMITED, Account, Quota
from costopt.domain.errors import MarketError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import flex_start_offer
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.notices import spot_notice_s
from costopt.formatting import minute_text, seconds_text

if TYPE_CHECKING:
    from costopt.catalog.price_cache import ListedOffers
    from costopt.energy.carbon import CarbonHistory
    from costopt.energy.live import LiveCarbon
    from costopt.market.screening import AgeLimit
    from costopt.market.statistics import PoolStatistics


MIN_RECORDED = timedelta(days=3)
"""Of less than this a record tells little of how often its pools are interrupted."""


@dataclass(frozen=True, slots=True)
class QuoteSet:
    """Offers at ``now``; ``origin`` is a sentence on what they are.

    ``age_limit`` is for offers of price lists, None for others, whose age the policy limits.
    ``notes`` are sentences on what could not be read and is missing.
    ``history`` is the record that the offers are of, None for list prices; ``carbon`` the recorded
    or live intensities; ``quotas`` what the clouds say that the account may have. ``notices_s`` are
    the notices of interruptions by provider, where they are not the usual ones.
    """

    now: datetime
    offers: tuple[Offer, ...]
    origin: str
    history: MarketHistory | None = None
    carbon: CarbonHistory | LiveCarbon | None = None
    quotas: tuple[Quota, ...] = ()
    notes: tuple[str, ...] = ()
    age_limit: AgeLimit | None = None
    notices_s: Mapping[str, float] = field(default_factory=dict)

    def notice_s(self, pool: Pool) -> float:
        """Return the seconds of notice before a node of the pool is interrupted."""
        known = self.notices_s.get(pool.provider)
        return spot_notice_s(pool) if known is None else known


def resolve_quotes(
    market: MarketHistory | None,
    at: datetime | None,
    carbon: Path | None = None,
    account: Account = UNLIMITED,
    max_age_s: float | None = None,
) -> QuoteSet:
    """Return the record's offers at ``at`` (default: where prices are first known); without a
    record the newest of the price lists, as of ``at`` (default: the present), in the account's
    clouds and regions.

    List prices older than ``max_age_s`` do not count; by default those of more than 30 days, where
    newer ones exist.

    ``carbon`` is as for ``with_carbon``.

    Raises SpecError, MarketError, and SignalError for a bad carbon or key file.
    """
    if market is not None:
        return with_carbon(recorded_quotes(market, at), carbon, account)
    return with_carbon(_listed(at or datetime.now(UTC), max_age_s, account), carbon, account)


def with_carbon(seen: QuoteSet, carbon: Path | None, account: Account) -> QuoteSet:
    """Return the quotes with the intensities of a file, or ``live`` of the account's service.
    Raises SpecError, and SignalError for a bad carbon or key file."""
    if carbon is None:
        return seen
    from costopt.controller.live_carbon import LIVE, check_present, connect_live_carbon
    from costopt.energy.carbon_files import read_carbon

    if carbon != LIVE:
        return replace(seen, carbon=read_carbon(carbon))
    check_present(seen.now)
    return replace(seen, carbon=connect_live_carbon(account))


def _listed(now: datetime, max_age_s: float | None, account: Account) -> QuoteSet:
    from costopt.catalog import load_catalog
    from costopt.catalog.price_cache import load_listed_offers
    from costopt.market.screening import AgeLimit

    listed = load_listed_offers(load_catalog())
    listed = listed._replace(offers=account_offers(listed.offers, account))
    limit = AgeLimit() if max_age_s is None else AgeLimit(max_age_s, strict=True)
    origin = _lists_text(listed, limit, now)
    return QuoteSet(now, listed.offers, origin, notes=listed.notes, age_limit=limit)


def account_offers(offers: Sequence[Offer], account: Account) -> tuple[Offer, ...]:
    """Return the offers of the clouds and regions that the account names, all where it names
    none. Raise MarketError where no price list has any of them."""
    if not account.providers:
        return tuple(offers)
    regions = {name: account.regions(name) for name in account.providers}
    found = tuple(
        offer
        for offer in offers
        if (own := regions.get(offer.pool.provider)) is not None
        and (not own or offer.pool.region in own)
    )
    if not found:
        raise MarketError(
            f"no price list holds a pool of the account's providers: {', '.join(regions)}",
            hint="--market live asks them for their present offers",
            code="not_listed",
        )
    return found


def _lists_text(listed: ListedOffers, limit: AgeLimit, now: datetime) -> str:
    """Say how old the listed prices are and where they come from, and how to refresh them."""
    prices = [offer.price_usd_per_hour for offer in listed.offers]
    ages_s = sorted(age for price in prices if price and (age := price.age_s(now)) is not None)
    fresh = ", ".join(
        f"{each.source} {seconds_text((now - each.observed_at).total_seconds())}"
        for each in listed.editions
    )
    old = sum(age_s > limit.max_s for age_s in ages_s)
    newest, oldest = (now - timedelta(seconds=each) for each in (ages_s[0], ages_s[-1]))
    span = (
        f"list prices of {oldest:%Y-%m-%d} to {newest:%Y-%m-%d}, {seconds_text(ages_s[0])} to "
        f"{seconds_text(ages_s[-1])} old ({f'{fresh}; else ' if fresh else ''}built-in)"
    )
    if old == len(ages_s):
        span += "; costopt catalog update fetches today's"
    elif old:
        span += f"; {old} of {len(ages_s)} are older than {seconds_text(limit.max_s)}"
        span += "" if limit.strict else " and count only where nothing newer does"
    return f"{span}: for planning, not for launching"


def recorded_quotes(
    history: MarketHistory, at: datetime | None, carbon: CarbonHistory | LiveCarbon | None = None
) -> QuoteSet:
    """The record's offers at ``at``; hazards are of what was recorded by then.

    They are of the whole record where less than ``MIN_RECORDED`` was. By default the instant is
    where every capacity type first has a price, which may be after the record's start.
    Raises MarketError for an instant before the record.
    """
    from costopt.market.statistics import history_statistics

    now = at or history.first_priced_at
    if now < history.starts_at:
        raise MarketError(
            f"market {history.name!r} begins at {minute_text(history.starts_at)}, "
            f"after {minute_text(now)}",
            hint="choose a later --at",
        )
    known = min(now, history.ends_at) - history.starts_at >= MIN_RECORDED
    statistics = history_statistics(history.until(now) if known else history)
    offers = tuple(
        _offer(recorded, statistics[pool], history, now) for pool, recorded in history.pools.items()
    )
    hazards_known = all(
        o.hazard_per_hour or not o.pool.capacity_type.is_interruptible for o in offers
    )
    hazards = f"interruption rates from its {'record by then' if known else 'whole record'}"
    if not hazards_known:
        offers = tuple(_with_hazards(offers))
        hazards += ", from published figures where it has no capacity data"
    origin = f"market {history.name} at {minute_text(now)}{_unpriced(offers)}, {hazards}"
    return QuoteSet(now, offers, origin, history=history, carbon=carbon)


def _unpriced(offers: Sequence[Offer]) -> str:
    """How many offers of each capacity type have no price, which excludes them."""
    total = Counter(offer.pool.capacity_type for offer in offers)
    unknown = Counter(o.pool.capacity_type for o in offers if o.price_usd_per_hour is None)
    counts = [f"{unknown[kind]} of {total[kind]} {kind.value} pools" for kind in unknown]
    return f", when {' and '.join(counts)} have no price" if counts else ""


def account_quotes(account: Account, names: tuple[str, ...]) -> QuoteSet:
    """What the account's providers of these names, all of them by default, offer now.

    A provider that does not answer is left out, as are quotas that cannot be read: the notes name
    them. Raises ProviderError where none does, SpecError for a name that the account does not know.
    """
    from costopt.controller.account_site import connect_account
    from costopt.controller.site import provider_quotas
    from costopt.domain.errors import ProviderError
    from costopt.engine.loop import WallClock
    from costopt.provider.base import notice_by_provider

    clock = WallClock()
    now = clock.now()
    offers: list[Offer] = []
    silent: list[ProviderError] = []
    quotas: list[Quota] = []
    unread: list[ProviderError] = []
    notices_s: dict[str, float] = {}
    for provider in connect_account(account, names, clock):
        try:
            offered = provider.offers(now)
            offers += offered
            notices_s |= {
                offer.pool.provider: notice_by_provider([provider], offer.pool)
                for offer in offered
                if offer.pool.capacity_type.is_interruptible
            }
            granted, failures = provider_quotas([provider], now)
            quotas += granted
            unread += failures
        except ProviderError as error:
            silent.append(error)
        finally:
            provider.close()
    if silent and not offers:
        raise silent[0]
    notes = (
        *(f"left out of the plan: {failure}" for failure in silent),
        *(f"planned without quotas: {failure}" for failure in unread),
    )
    served = ", ".join(sorted({offer.pool.provider for offer in offers})) or "no pool"
    origin = f"offers of {served} at {minute_text(now)}, interruption rates as published"
    hazarded = tuple(_with_hazards(offers))
    return QuoteSet(now, hazarded, origin, quotas=tuple(quotas), notes=notes, notices_s=notices_s)


def _with_hazards(offers: Iterable[Offer]) -> Iterator[Offer]:
    """Give offers without a hazard the prior of an unobserved pool."""
    from costopt.catalog import load_catalog
    from costopt.controller.forecasts import catalog_hazard_priors

    prior = catalog_hazard_priors(load_catalog())
    for offer in offers:
        if offer.hazard_per_hour is None and offer.pool.capacity_type.is_interruptible:
            yield replace(offer, hazard_per_hour=prior(offer.pool))
        else:
            yield offer


def _offer(
    recorded: PoolHistory, statistics: PoolStatistics, history: MarketHistory, now: datetime
) -> Offer:
    """The pool at ``now``; after the end of its record, its last price at the age it has then."""
    state = recorded.at(now) or recorded.states[-1]
    seen_at = min(now, recorded.ends_at)
    terms = recorded.pool.capacity_type
    price = state.price_usd_per_hour
    offer = Offer(
        pool=recorded.pool,
        price_usd_per_hour=None
        if price is None
        else Estimate.exact(price, Basis.MEASURED, history.name, seen_at),
        hazard_per_hour=statistics.hazard_per_hour,
        nodes_available=state.nodes_available,
        # A record of on-demand is one stretch, and one stretch says little of a share.
        availability=statistics.availability if terms.is_interruptible else None,
    )
    if terms is CapacityType.FLEX_START:
        return flex_start_offer(replace(offer, nodes_available=None), (), now)
    return offer
