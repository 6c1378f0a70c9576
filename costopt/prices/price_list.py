"""What the parsers of price lists return, and what they share.

A parser keeps the machines and regions of the catalog and leaves out everything else.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import nan
from statistics import median_low

from costopt.catalog.catalog import Catalog
from costopt.catalog.price_cache import region_pool
from costopt.domain.errors import PriceListError
from costopt.domain.market import CapacityType, Pool

Listed = tuple[Pool, float]
"""A pool and its dollars per node-hour, NaN where the list holds no number."""


@dataclass(frozen=True, slots=True)
class ParsedPrices:
    """A parsed list: a price per pool, and interruption buckets by region and instance type.

    ``rows`` is how many rows it was made of. ``observed_at`` is the list's own date, None without.
    """

    prices: Mapping[Pool, float] = field(default_factory=dict)
    rows: int = 0
    observed_at: datetime | None = None
    buckets: Mapping[tuple[str, str], int] = field(default_factory=dict)


Parse = Callable[[bytes, Catalog], ParsedPrices]
"""Reads the uncompressed bytes of a list. Raises PriceListError for another form."""


def collect_prices(listed: Iterator[Listed], observed_at: datetime | None = None) -> ParsedPrices:
    """Return the file of these rows: where a pool occurs more than once, the median of its rows.

    Raise PriceListError if there are none.
    """
    found: dict[Pool, list[float]] = {}
    for pool, usd in listed:
        found.setdefault(pool, []).append(usd)
    if not found:
        raise PriceListError("it holds no price of a machine in the catalog")
    prices = {pool: median_low(each) for pool, each in found.items()}
    return ParsedPrices(prices, sum(map(len, found.values())), observed_at)


def parse_usd(text: object) -> float | None:
    """Return a price, NaN for what is not a number, None for an empty cell."""
    if text is None or text == "":
        return None
    try:
        return float(str(text))
    except ValueError:
        return nan


def rented_pool(
    known: Catalog, provider: str, region: str, name: str, terms: CapacityType
) -> Pool | None:
    """Return the region's pool if the catalog has the region and rents the type on these terms."""
    if known.region(provider, region) is None or terms not in known.terms(provider, name):
        return None
    return region_pool(provider, region, name, terms)


def decode_text(body: bytes) -> str:
    """Return the text. Raise PriceListError if it is not UTF-8."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PriceListError(f"it is not UTF-8 text (byte {error.start})") from None


def read_csv_rows(body: bytes, needed: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the rows by column name, whatever the order and the other columns.

    Raise PriceListError if a needed column is missing or the text is not CSV.
    """
    reader = csv.DictReader(io.StringIO(decode_text(body), newline=""))
    try:
        header = reader.fieldnames or ()
        missing = [name for name in needed if name not in header]
        if missing:
            begins = body[:40].decode("utf-8", "replace")
            raise PriceListError(f"it has no column {', '.join(missing)}; it begins {begins!r}")
        for row in reader:
            if all(row[name] is not None for name in needed):
                yield row
    except csv.Error as error:
        raise PriceListError(f"it is not CSV: {error}") from None
