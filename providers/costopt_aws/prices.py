"""On-demand list prices, from the freshest available source.

The sources are the Pricing API and the public price file of a region: every price of EC2 as CSV,
without credentials. The file of a large region has some hundred megabytes, so it is streamed and
only the on-demand prices of plain Linux nodes are cached, on disk if a folder is given.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import Any

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt.provider.cache import TtlCache, fan_out
from costopt_aws.clients import Clients, open_url
from costopt_aws.errors import map_errors

ListPrices = Callable[[str, str, str], Estimate | None]
"""Returns a dated price by (provider, region, instance type), such as the catalogue's."""


class OnDemandPrices:
    """The Pricing API, else the public price file, else a dated list of the caller.

    Each price names its source and when it was observed, so that its age can be shown.
    """

    def __init__(
        self, api: PricingApi, price_file: PriceFile, dated: ListPrices | None = None
    ) -> None:
        self._api = api
        self._file = price_file
        self._dated = dated

    def prices(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[Mapping[str, Estimate], str]:
        """Return list prices by instance type, and why the others are unknown ("" if all are)."""
        reasons: list[str] = []
        try:
            found = dict(self._api.prices(region, instance_types, now))
        except ProviderError as error:
            found, reasons = {}, [error.message]
        missing = [name for name in instance_types if name not in found]
        if missing:
            found |= self._from_file(region, missing, now, reasons)
        for name in instance_types:
            if name not in found and (dated := self._listed(region, name)) is not None:
                found[name] = dated
        if len(found) == len(set(instance_types)):
            return found, ""
        return found, "; ".join(["no list price is known", *reasons])

    def _from_file(
        self, region: str, names: Collection[str], now: datetime, reasons: list[str]
    ) -> dict[str, Estimate]:
        try:
            read = {name: self._file.price(region, name, now) for name in names}
        except ProviderError as error:
            reasons.append(error.message)
            return {}
        return {name: price for name, price in read.items() if price is not None}

    def _listed(self, region: str, instance_type: str) -> Estimate | None:
        return None if self._dated is None else self._dated("aws", region, instance_type)


HOME = "us-east-1"
"""The API exists in few regions, and answers for all of them."""

DAY_S = 86400.0
PRICING_API_MAX_AGE_S = 7 * DAY_S
FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


class PricingApi:
    """GetProducts, once a day for each instance type: one answer covers all regions."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[str, tuple[Mapping[str, float], datetime]] = TtlCache(
            DAY_S, PRICING_API_MAX_AGE_S
        )

    def prices(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> Mapping[str, Estimate]:
        """Return list prices of a region by instance type, without types that have none.

        Raise ProviderError if none is available.
        """
        names = sorted(instance_types)
        if not names:
            return {}
        results = {names[0]: self._usd_per_hour(names[0], now)}
        due = [name for name in names[1:] if not self._kept.is_fresh(name, now)]
        fetched = fan_out(due, lambda name: self._usd_per_hour(name, now))
        for name in names[1:]:
            response = fetched[name] if name in fetched else self._usd_per_hour(name, now)
            if not isinstance(response, ProviderError):
                results[name] = response
        return {
            name: Estimate.exact(usd[region], Basis.LISTED, "AWS Pricing API", asked_at)
            for name, (usd, asked_at) in results.items()
            if region in usd
        }

    def _usd_per_hour(
        self, instance_type: str, now: datetime
    ) -> tuple[Mapping[str, float], datetime]:
        return self._kept.get(instance_type, now, lambda: (self._ask(instance_type), now))

    def _ask(self, instance_type: str) -> Mapping[str, float]:
        wanted = {**FILTERS, "instanceType": instance_type}
        with map_errors("pricing:GetProducts", f"{HOME}: {instance_type}"):
            pages = (
                self._clients.reading("pricing", HOME)
                .get_paginator("get_products")
                .paginate(
                    ServiceCode="AmazonEC2",
                    Filters=[
                        {"Type": "TERM_MATCH", "Field": field, "Value": value}
                        for field, value in wanted.items()
                    ],
                )
            )
            texts = [text for page in pages for text in page["PriceList"]]
            return read_products([json.loads(text) for text in texts])


def read_products(products: Collection[Mapping[str, Any]]) -> dict[str, float]:
    """Return dollars per hour by region, without regions that have two different prices."""
    found: dict[str, set[float]] = {}
    for product in products:
        region = product["product"]["attributes"].get("regionCode")
        if region:
            found.setdefault(region, set()).update(_usd_per_hour(product))
    return {region: usd.pop() for region, usd in found.items() if len(usd) == 1}


def _usd_per_hour(product: Mapping[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == "Hrs" and usd > 0:
                yield usd


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
"""The cells of a plain on-demand Linux node; a column that the file lacks is not compared."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """Dollars per hour by instance type, with the times of publication and of the download."""

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
        """Return the list price of a node, None if the file has none. Raise ProviderError."""
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
                    f"{url} is not a complete price file of EC2: {error}"
                ) from error
        if not whole:
            raise ProviderUnavailableError(f"{url}: the connection ended before the file did")
        return PriceList(prices, published, now)

    def _path(self, region: str) -> Path | None:
        return None if self._folder is None else self._folder / f"aws-list-prices-{region}.json"

    def _saved(self, region: str) -> PriceList | None:
        """Return what an earlier process fetched, None if its file is damaged."""
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
        """Store the prices for the next process; an unwritable folder only costs a download."""
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
    """Return (date of publication, dollars per hour by instance type) of an index.csv.

    Five rows precede the header. Prices of 0 are left out, which belong to capacity that is paid
    for otherwise, and types that are listed at two prices. Raise ValueError.
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
