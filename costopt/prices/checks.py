"""Checks of public prices: a figure that departs too far from what else is known is held back.

The figure of the edition before stays in its place, with its own age.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from costopt.catalog.catalog import Catalog
from costopt.catalog.price_cache import Edition, PriceQuote, SourceState, region_pool
from costopt.domain.errors import PriceListError
from costopt.domain.market import CapacityType, Pool
from costopt.prices.price_list import ParsedPrices
from costopt.prices.sources import PriceSource

MAX_USD_PER_HOUR = 500.0
PLACEHOLDER_USD = 700.0
MAX_MEDIAN_RATIO = 2.0
MIN_MEDIAN_REGIONS = 3
MIN_SPOT_SHARE = 0.08
MAX_CHANGE = 5.0
MAX_DISAGREEMENT = 2.0
"""Within this factor another source confirms a figure."""
MIN_ROW_SHARE = 0.5
MIN_TYPE_SHARE = 0.9
SAME = 1e-4
"""Relative difference below which two prices are equal."""

Key = tuple[str, str, str, CapacityType]
"""Provider, region, instance type and terms: a pool without its zone."""


def price_key(pool: Pool) -> Key:
    """Return what is common to the zones of a region."""
    return pool.provider, pool.region, pool.instance_type, pool.capacity_type


@dataclass(frozen=True, slots=True)
class HeldPrice:
    """A figure that was not accepted. ``code`` is stable; ``kept`` stays in its place, if any."""

    source: str
    pool: Pool
    usd_per_hour: float
    code: str
    reason: str
    kept: PriceQuote | None


@dataclass(frozen=True, slots=True)
class NewList:
    """A source's new list, and the figures of its edition before, by pool."""

    source: PriceSource
    file: ParsedPrices
    edition: Edition
    before: Mapping[Pool, PriceQuote]


def check_file(file: ParsedPrices, before: SourceState, quotes: Sequence[PriceQuote]) -> None:
    """Raise PriceListError if the list lacks too much of what its edition before had."""
    if file.rows < MIN_ROW_SHARE * before.rows:
        raise PriceListError(f"it has {file.rows:,} rows, the one before had {before.rows:,}")
    types = {quote.pool.instance_type for quote in quotes}
    priced = {pool.instance_type for pool in file.prices}
    missing = sorted(types - priced)
    if len(missing) > (1 - MIN_TYPE_SHARE) * len(types):
        named = ", ".join(missing[:3])
        raise PriceListError(
            f"it lacks {len(missing)} of the {len(types)} instance types priced before ({named})"
        )


class PriceChecks:
    """Judges new lists against each other, the figures before and the built-in tables.

    ``cached`` are the figures of the sources that have no new list.
    """

    def __init__(
        self, known: Catalog, lists: Sequence[NewList], cached: Sequence[PriceQuote]
    ) -> None:
        self._known = known
        self._lists = lists
        self._witnesses: dict[Key, list[tuple[str, float]]] = defaultdict(list)
        for quote in cached:
            self._witness(quote.edition.source, quote.pool, quote.usd_per_hour)
        for new in lists:
            for pool, usd in new.file.prices.items():
                self._witness(new.source.name, pool, usd)
        self._accepted: dict[Key, PriceQuote] = {}
        for quote in cached:
            self._accepted.setdefault(price_key(quote.pool), quote)
        self.quotes: list[PriceQuote] = []
        self.held: list[HeldPrice] = []

    def run(self) -> None:
        """Fill ``quotes`` and ``held``: list prices first, since spot is judged by them."""
        for terms in (CapacityType.ON_DEMAND, CapacityType.SPOT):
            for new in self._lists:
                self._judge(new, terms)

    def _judge(self, new: NewList, terms: CapacityType) -> None:
        prices = {pool: usd for pool, usd in new.file.prices.items() if pool.capacity_type is terms}
        medians = _medians(prices)
        for pool, usd in prices.items():
            fault = self._fault(new, pool, usd, medians)
            if fault is None:
                quote = self._quote(new, pool, usd)
                self.quotes.append(quote)
                self._accepted.setdefault(price_key(pool), quote)
                continue
            kept = new.before.get(pool)
            if kept is not None:
                self.quotes.append(kept)
            self.held.append(HeldPrice(new.source.name, pool, usd, *fault, kept))

    def _fault(
        self, new: NewList, pool: Pool, usd: float, medians: Mapping[str, float]
    ) -> tuple[str, str] | None:
        if not _is_valid(usd):
            return "invalid", f"{usd:g} $/h is not a price of one node"
        if pool.capacity_type is CapacityType.ON_DEMAND:
            fault = self._list_fault(new, pool, usd, medians)
        else:
            fault = self._spot_fault(pool, usd)
        return fault or self._change_fault(new, pool, usd)

    def _list_fault(
        self, new: NewList, pool: Pool, usd: float, medians: Mapping[str, float]
    ) -> tuple[str, str] | None:
        usual = medians.get(pool.instance_type)
        if usual is not None and not 1 / MAX_MEDIAN_RATIO <= usd / usual <= MAX_MEDIAN_RATIO:
            return "median", f"the median of its type over regions is {usual:.4g} $/h"
        if new.source.doubts_list:
            spot = price_key(pool.with_capacity_type(CapacityType.SPOT))
            above = max((u for _, u in self._witnesses.get(spot, ())), default=0.0)
            if above > usd * (1 + SAME):
                return "below_spot", f"spot there costs {above:.4g} $/h"
        return None

    def _spot_fault(self, pool: Pool, usd: float) -> tuple[str, str] | None:
        listed = self._list_price(pool)
        if listed is not None and usd < MIN_SPOT_SHARE * listed:
            return "below_list", f"below {MIN_SPOT_SHARE:.0%} of the list price, {listed:.4g} $/h"
        return None

    def _change_fault(self, new: NewList, pool: Pool, usd: float) -> tuple[str, str] | None:
        reference = self._reference(new, pool)
        if reference is None or _within(usd, reference[1], MAX_CHANGE):
            return None
        others = [u for name, u in self._witnesses[price_key(pool)] if name != new.source.name]
        if any(_within(usd, other, MAX_DISAGREEMENT) for other in others):
            return None
        what, before_usd = reference
        return "changed", f"more than {MAX_CHANGE:g}× off {what}, {before_usd:.4g} $/h"

    def _reference(self, new: NewList, pool: Pool) -> tuple[str, float] | None:
        before = new.before.get(pool)
        if before is not None:
            return "the figure before", before.usd_per_hour
        accepted = self._accepted.get(price_key(pool))
        if accepted is not None and accepted.edition.source != new.source.name:
            return accepted.edition.source, accepted.usd_per_hour
        built_in = self._built_in(pool)
        return None if built_in is None else ("the built-in figure", built_in)

    def _built_in(self, pool: Pool) -> float | None:
        price = (
            self._known.list_price_usd_per_hour
            if pool.capacity_type is CapacityType.ON_DEMAND
            else self._known.spot_price_usd_per_hour
        )
        figure = price(pool.provider, pool.region, pool.instance_type)
        return None if figure is None else figure.value

    def _list_price(self, pool: Pool) -> float | None:
        listed = region_pool(pool.provider, pool.region, pool.instance_type, CapacityType.ON_DEMAND)
        accepted = self._accepted.get(price_key(listed))
        return self._built_in(listed) if accepted is None else accepted.usd_per_hour

    def _quote(self, new: NewList, pool: Pool, usd: float) -> PriceQuote:
        """Return the figure, on spot at most the list price, where that is not in doubt."""
        listed = None
        if pool.capacity_type is CapacityType.SPOT:
            listed = self._list_price(pool)
        if listed is None or usd < listed * (1 - SAME):
            return PriceQuote(pool, usd, new.edition)
        if usd <= listed * (1 + SAME):
            return PriceQuote(pool, usd, new.edition, note="no discount")
        if new.source.doubts_list:
            return PriceQuote(pool, usd, new.edition, note="above the list price")
        return PriceQuote(pool, listed, new.edition, note="capped at the list price")

    def _witness(self, source: str, pool: Pool, usd: float) -> None:
        if _is_valid(usd):
            self._witnesses[price_key(pool)].append((source, usd))


def _medians(prices: Mapping[Pool, float]) -> dict[str, float]:
    """Return the median of each type that is priced in enough regions."""
    found: dict[str, list[float]] = defaultdict(list)
    for pool, usd in prices.items():
        if _is_valid(usd):
            found[pool.instance_type].append(usd)
    return {name: median(each) for name, each in found.items() if len(each) >= MIN_MEDIAN_REGIONS}


def _is_valid(usd: float) -> bool:
    return math.isfinite(usd) and 0 < usd < MAX_USD_PER_HOUR and usd != PLACEHOLDER_USD


def _within(usd: float, other: float, factor: float) -> bool:
    return other / factor <= usd <= other * factor


def choose_quotes(
    quotes: Sequence[PriceQuote], order: Sequence[str]
) -> tuple[tuple[PriceQuote, ...], tuple[PriceQuote, ...]]:
    """Return the figures that count in plans, and the others.

    Of each region, type and terms the zones count before the region, and sources by ``order``,
    unless their figure is more than a day older than the newest (a list price: thirty days).
    """
    by_key: dict[Key, list[PriceQuote]] = defaultdict(list)
    for quote in quotes:
        by_key[price_key(quote.pool)].append(quote)
    ranks = {name: rank for rank, name in enumerate(order)}
    chosen = {id(quote) for each in by_key.values() for quote in _chosen(each, ranks)}
    return (
        tuple(quote for quote in quotes if id(quote) in chosen),
        tuple(quote for quote in quotes if id(quote) not in chosen),
    )


DAY_S = 86_400.0
SUPERSEDED_AFTER_S = {CapacityType.SPOT: DAY_S, CapacityType.ON_DEMAND: 30 * DAY_S}


def _chosen(quotes: Sequence[PriceQuote], ranks: Mapping[str, int]) -> Iterator[PriceQuote]:
    newest = max(quote.edition.observed_at for quote in quotes)
    after_s = SUPERSEDED_AFTER_S[quotes[0].pool.capacity_type]
    recent = [
        quote for quote in quotes if (newest - quote.edition.observed_at).total_seconds() <= after_s
    ]
    in_zones = [quote for quote in recent if not quote.pool.zone.endswith("*")]
    best: dict[Pool, PriceQuote] = {}
    last = len(ranks)
    for quote in sorted(in_zones or recent, key=lambda q: ranks.get(q.edition.source, last)):
        best.setdefault(quote.pool, quote)
    yield from best.values()
