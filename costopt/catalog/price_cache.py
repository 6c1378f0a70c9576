"""The user's cache of public price lists: one JSON file, and the offers that follow from it.

``costopt.prices`` writes the file; plans and the catalog read it. A figure keeps the edition, that
is the retrieved file, from which it was taken, so its age is its own and not that of the cache.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from costopt.catalog.catalog import ANY_ZONE, Catalog
from costopt.catalog.traits import find_traits
from costopt.domain.errors import PriceListError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.hazards import InterruptionBucket, hazard_from_interruption_bucket
from costopt.domain.market import ON_DEMAND_HAZARD, CapacityType, Offer, Pool

SCHEMA = "costopt.prices/1"
FILE = "prices.json"
REFRESH = "costopt catalog update"


@dataclass(frozen=True, slots=True)
class Edition:
    """One retrieved file of a source.

    ``observed_at`` is when the source saw its prices; where the source gives no date (``dated``
    False) it is when the file was first seen here, so that the prices may be older. ``fetched_at``
    is when the file was retrieved, ``size_bytes`` and ``sha256`` are of its uncompressed form.
    """

    source: str
    url: str
    version: str
    observed_at: datetime
    dated: bool
    fetched_at: datetime
    size_bytes: int
    sha256: str


class PriceQuote(NamedTuple):
    """Dollars per node-hour of a pool in an edition; ``note`` is "" or what to know about it."""

    pool: Pool
    usd_per_hour: float
    edition: Edition
    basis: Basis = Basis.LISTED
    note: str = ""


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is known of a source: its last accepted edition, None before the first.

    ``etag`` belongs to the edition's URL. ``rows`` counts the edition's prices of machines in the
    catalog. ``checked_at`` is when the source last confirmed the edition.
    """

    name: str
    edition: Edition | None = None
    etag: str = ""
    rows: int = 0
    checked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PriceCache:
    """The cached figures. ``chosen`` count in plans; ``others`` are those of other sources.

    ``buckets`` are the Spot Advisor's for AWS, by region and instance type.
    """

    sources: Mapping[str, SourceState] = field(default_factory=dict)
    chosen: tuple[PriceQuote, ...] = ()
    others: tuple[PriceQuote, ...] = ()
    buckets: Mapping[tuple[str, str], int] = field(default_factory=dict)
    buckets_edition: Edition | None = None


def price_cache_path() -> Path:
    """Return ``costopt/prices.json`` in ``$XDG_CACHE_HOME``, by default in ``~/.cache``.

    Raise PriceListError where neither exists as an absolute path.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        raise PriceListError(
            "there is no home directory to keep price lists in",
            hint="set XDG_CACHE_HOME to a folder that this user may write to",
            code="no_home",
        ) from None
    return base / "costopt" / FILE


def read_price_cache(path: Path, *, chosen_only: bool = False) -> PriceCache | None:
    """Return the cache, None where there is no file yet; without ``others`` if ``chosen_only``.

    Raise PriceListError for a file that cannot be read.
    """
    try:
        return _parse(json.loads(path.read_bytes()), chosen_only)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, (error.strerror or str(error)).lower()) from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise _unreadable(path, f"it is corrupt ({type(error).__name__})") from None


def encode_price_cache(prices: PriceCache) -> bytes:
    """Return the bytes of the file."""
    editions: dict[Edition, int] = {}

    def number(edition: Edition | None) -> int | None:
        return None if edition is None else editions.setdefault(edition, len(editions))

    def rows(quotes: Iterable[PriceQuote]) -> list[list[Any]]:
        return [
            [number(q.edition), *_pool_cells(q.pool), q.usd_per_hour, q.basis.value, q.note]
            for q in quotes
        ]

    body = {
        "schema": SCHEMA,
        "sources": [_source_fields(each, number(each.edition)) for each in prices.sources.values()],
        "chosen": rows(prices.chosen),
        "others": rows(prices.others),
        "buckets_edition": number(prices.buckets_edition),
        "buckets": [[*key, bucket] for key, bucket in prices.buckets.items()],
        "editions": [_edition_fields(each) for each in editions],
    }
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


class ListedOffers(NamedTuple):
    """Offers at the newest listed prices, and the newest edition of each public list among them.

    ``notes`` say why a cache cannot be used.
    """

    offers: tuple[Offer, ...]
    editions: tuple[Edition, ...] = ()
    notes: tuple[str, ...] = ()


def load_listed_offers(known: Catalog) -> ListedOffers:
    """Return the offers of the user's cache and of the built-in tables."""
    try:
        prices = read_price_cache(price_cache_path(), chosen_only=True)
    except PriceListError as error:
        note = f"{error.message}; the built-in prices count. {error.hint}"
        return ListedOffers(known.offers(), notes=(note,))
    if prices is None:
        return ListedOffers(known.offers())
    used = {quote.edition.source for quote in prices.chosen}
    newest = [state.edition for state in prices.sources.values() if state.name in used]
    return ListedOffers(freshest_offers(known, prices), tuple(filter(None, newest)))


def freshest_offers(known: Catalog, prices: PriceCache) -> tuple[Offer, ...]:
    """Return the catalog's offers with the cache's figures where these are newer.

    Where a pool of a region is quoted by zone, its zones take its place.
    """
    quoted: dict[tuple[str, str, str, CapacityType], list[PriceQuote]] = defaultdict(list)
    for quote in prices.chosen:
        quoted[_key(quote.pool)].append(quote)
    return tuple(_offers(known, prices, quoted))


def _offers(
    known: Catalog,
    prices: PriceCache,
    quoted: dict[tuple[str, str, str, CapacityType], list[PriceQuote]],
) -> Iterator[Offer]:
    hazards = _Hazards(prices)
    for offer in known.offers():
        quotes = quoted.pop(_key(offer.pool), ())
        built_in = offer.price_usd_per_hour
        built_at = built_in.observed_at if built_in else None
        fresh = [q for q in quotes if built_at is None or q.edition.observed_at >= built_at]
        if not fresh:
            yield offer
        for quote in fresh:
            hazard = hazards.of(quote, offer.hazard_per_hour)
            yield replace(
                offer, pool=quote.pool, price_usd_per_hour=_estimate(quote), hazard_per_hour=hazard
            )
    for quotes in quoted.values():
        for quote in quotes:
            yield Offer(quote.pool, _estimate(quote), hazards.of(quote, None), None)


class _Hazards:
    """Hazards of spot offers: the Advisor's bucket, the built-in one, the provider's own share."""

    def __init__(self, prices: PriceCache) -> None:
        self._buckets = prices.buckets
        self._edition = prices.buckets_edition
        self._prior = cache(hazard_from_interruption_bucket)

    def of(self, quote: PriceQuote, built_in: Estimate | None) -> Estimate | None:
        pool = quote.pool
        if not pool.capacity_type.is_interruptible:
            return built_in or ON_DEMAND_HAZARD
        if pool.provider == ADVISED and self._edition is not None:
            bucket = self._buckets.get((pool.region, pool.instance_type))
            if bucket is not None:
                return self._prior(InterruptionBucket(bucket), self._edition.observed_at)
        return built_in or find_traits(pool.provider).spot_hazard_per_hour(
            quote.edition.observed_at
        )


ADVISED = "aws"
"""The provider whose interruption shares ``PriceCache.buckets`` hold."""


def _estimate(quote: PriceQuote) -> Estimate:
    edition = quote.edition
    parts = (f"{edition.source} {edition.version}".rstrip(), quote.note)
    return Estimate.exact(
        quote.usd_per_hour, quote.basis, ", ".join(filter(None, parts)), edition.observed_at
    )


def region_pool(
    provider: str, region: str, instance_type: str, capacity_type: CapacityType
) -> Pool:
    """Return the pool of any zone of a region."""
    return Pool(provider, region, region + ANY_ZONE, instance_type, capacity_type)


def _key(pool: Pool) -> tuple[str, str, str, CapacityType]:
    return pool.provider, pool.region, pool.instance_type, pool.capacity_type


def _pool_cells(pool: Pool) -> tuple[str, ...]:
    return pool.provider, pool.region, pool.zone, pool.instance_type, pool.capacity_type.value


def _source_fields(state: SourceState, edition: int | None) -> dict[str, Any]:
    return {
        "name": state.name,
        "edition": edition,
        "etag": state.etag,
        "rows": state.rows,
        "checked_at": _text(state.checked_at),
    }


def _edition_fields(edition: Edition) -> dict[str, Any]:
    return {
        "source": edition.source,
        "url": edition.url,
        "version": edition.version,
        "observed_at": _text(edition.observed_at),
        "dated": edition.dated,
        "fetched_at": _text(edition.fetched_at),
        "size_bytes": edition.size_bytes,
        "sha256": edition.sha256,
    }


def _parse(body: dict[str, Any], chosen_only: bool) -> PriceCache:
    if body["schema"] != SCHEMA:
        raise ValueError(f"the form is {body['schema']!r}")
    editions = [_edition(each) for each in body["editions"]]
    bucketed = body["buckets_edition"]
    states = [_source(each, editions) for each in body["sources"]]
    return PriceCache(
        sources={state.name: state for state in states},
        chosen=tuple(_quotes(body["chosen"], editions)),
        others=() if chosen_only else tuple(_quotes(body["others"], editions)),
        buckets={(region, name): int(bucket) for region, name, bucket in body["buckets"]},
        buckets_edition=None if bucketed is None else editions[bucketed],
    )


def _quotes(rows: Iterable[list[Any]], editions: list[Edition]) -> Iterator[PriceQuote]:
    terms = {each.value: each for each in CapacityType}
    bases = {each.value: each for each in Basis}
    for number, provider, region, zone, name, kind, usd, basis, note in rows:
        pool = Pool(provider, region, zone, name, terms[kind])
        yield PriceQuote(pool, float(usd), editions[number], bases[basis], note)


def _source(fields: dict[str, Any], editions: list[Edition]) -> SourceState:
    number = fields["edition"]
    return SourceState(
        name=fields["name"],
        edition=None if number is None else editions[number],
        etag=fields["etag"],
        rows=int(fields["rows"]),
        checked_at=_instant(fields["checked_at"]),
    )


def _edition(fields: dict[str, Any]) -> Edition:
    observed_at, fetched_at = _instant(fields["observed_at"]), _instant(fields["fetched_at"])
    if observed_at is None or fetched_at is None:
        raise ValueError("an edition has no time")
    return Edition(**{**fields, "observed_at": observed_at, "fetched_at": fetched_at})


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def _unreadable(path: Path, why: str) -> PriceListError:
    return PriceListError(
        f"the price lists in {path} cannot be read: {why}",
        hint=f"{REFRESH} writes the file again",
        code="unreadable",
    )
