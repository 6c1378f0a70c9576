"""The public price file of a region: every price of EC2 as CSV, without credentials.

The file of a large region holds some hundred megabytes, so it is read as it comes and only the
on-demand prices of plain Linux nodes are kept, on disk if a folder is given.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from itertools import islice
from pathlib import Path

from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt.provider.cache import TtlCache
from costopt_aws.web import open_url

PRICE_FILE_URL = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current"
PREFACE_ROWS = 5
WEEK_S = 7 * 86400.0
PRICE_FILE_MAX_AGE_S = 90 * 86400.0

WANTED = {
    "TermType": "OnDemand",
    "Unit": "Hrs",
    "Currency": "USD",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "Pre Installed S/W": "NA",
    "CapacityStatus": "Used",
}
"""What a plain Linux node on demand is sold as; a column that the file lacks does not count."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """Dollars per hour by instance type, when they were published and when they were fetched."""

    usd_per_hour: Mapping[str, float]
    published: str
    fetched_at: datetime


class PriceFile:
    """On-demand prices from the public files, fetched once a week for each region."""

    def __init__(self, url: str = PRICE_FILE_URL, folder: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._folder = folder
        self._kept: TtlCache[str, PriceList] = TtlCache(WEEK_S, PRICE_FILE_MAX_AGE_S)

    def price(self, region: str, instance_type: str, now: datetime) -> Estimate | None:
        """The list price of a node, None where the file has none. Raises ProviderError."""
        listed = self._kept.get(region, now, lambda: self._read(region, now))
        usd = listed.usd_per_hour.get(instance_type)
        if usd is None:
            return None
        source = f"AWS price file of {region}, published {listed.published}"
        return Estimate.exact(usd, Basis.LISTED, source, listed.fetched_at)

    def _read(self, region: str, now: datetime) -> PriceList:
        saved = self._saved(region)
        if saved is not None and (now - saved.fetched_at).total_seconds() < WEEK_S:
            return saved
        try:
            listed = self._fetch(region, now)
        except ProviderUnavailableError:
            if saved is None or (now - saved.fetched_at).total_seconds() > PRICE_FILE_MAX_AGE_S:
                raise
            return saved
        self._save(region, listed)
        return listed

    def _fetch(self, region: str, now: datetime) -> PriceList:
        url = f"{self._url}/{region}/index.csv"
        with open_url(url) as stream:
            try:
                published, prices = read_price_file(io.TextIOWrapper(stream, "utf-8", newline=""))
                whole = stream.length in (None, 0)
            except (ValueError, csv.Error, HTTPException) as error:
                raise ProviderUnavailableError(
                    f"{url} is no price file of EC2, or not all of it: {error}"
                ) from error
        if not whole:
            raise ProviderUnavailableError(f"{url}: the connection ended before the file did")
        return PriceList(prices, published, now)

    def _path(self, region: str) -> Path | None:
        return None if self._folder is None else self._folder / f"aws-list-prices-{region}.json"

    def _saved(self, region: str) -> PriceList | None:
        """What an earlier process fetched; a file that is damaged counts as none."""
        path = self._path(region)
        if path is None:
            return None
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            content = json.loads(path.read_text(encoding="utf-8"))
            return PriceList(
                {str(name): float(usd) for name, usd in content["usd_per_hour"].items()},
                str(content["published"]),
                datetime.fromisoformat(content["fetched_at"]).astimezone(UTC),
            )
        return None

    def _save(self, region: str, listed: PriceList) -> None:
        """Keep for the next process; a folder that cannot be written costs a download, no more."""
        path = self._path(region)
        if path is None:
            return
        content = {
            "published": listed.published,
            "fetched_at": listed.fetched_at.isoformat(),
            "usd_per_hour": dict(listed.usd_per_hour),
        }
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            Path(temporary).replace(path)


def read_price_file(lines: Iterable[str]) -> tuple[str, dict[str, float]]:
    """(date of publication, dollars per hour by instance type) of an index.csv.

    Five rows come before the header. A price of 0 stands beside capacity that was paid for
    otherwise and is left out; a type that is listed at two prices is, too. Raises ValueError.
    """
    rows = csv.reader(lines)
    preface = dict(row[:2] for row in islice(rows, PREFACE_ROWS) if len(row) >= 2)
    header = next(rows, None)
    if header is None or "Instance Type" not in header or "PricePerUnit" not in header:
        raise ValueError("it has no columns Instance Type and PricePerUnit")
    found: dict[str, set[float]] = {}
    for name, usd in _plain_linux(header, rows):
        found.setdefault(name, set()).add(usd)
    prices = {name: usd.pop() for name, usd in found.items() if len(usd) == 1}
    return preface.get("Publication Date", "at an unknown time"), prices


def _plain_linux(header: list[str], rows: Iterable[list[str]]) -> Iterator[tuple[str, float]]:
    at = {name: index for index, name in enumerate(header)}
    wanted = [(at[column], value) for column, value in WANTED.items() if column in at]
    market = at.get("MarketOption")
    name_at, usd_at = at["Instance Type"], at["PricePerUnit"]
    for number, row in enumerate(rows, start=PREFACE_ROWS + 2):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} cells, the header {len(header)}")
        if any(row[index] != value for index, value in wanted):
            continue
        if market is not None and row[market] not in ("", "OnDemand"):
            continue
        usd = float(row[usd_at])
        if row[name_at] and usd > 0:
            yield row[name_at], usd
