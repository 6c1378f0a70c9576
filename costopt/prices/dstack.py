"""dstack's price catalogs: an hourly, dated list per provider, made by gpuhunt.

https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3/PROVIDER/version holds YYYYMMDD-RUN,
.../YYYYMMDD-RUN/catalog.zip one PROVIDER.csv. An AWS spot price is that of the region's cheapest
zone. Google's on-demand prices there do not agree with Google's price list and are left out.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

from costopt.catalog.catalog import Catalog
from costopt.catalog.price_cache import Edition
from costopt.catalog.traits import find_traits
from costopt.domain.errors import CatalogError, PriceListError
from costopt.domain.market import CapacityType
from costopt.download import Download, Downloader
from costopt.prices.price_list import (
    Listed,
    Parse,
    ParsedPrices,
    collect_prices,
    parse_usd,
    read_csv_rows,
    rented_pool,
)

BASE_URL = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"
MAX_VERSION_BYTES = 1000
MAX_ZIP_BYTES = 32 * 2**20
MAX_CSV_BYTES = 64 * 2**20
NEEDED = ("instance_name", "location", "price", "spot")
VERSION = re.compile(r"(20\d{6})-\d{1,9}")


def fetch_dstack(
    downloader: Downloader, provider: str, before: Edition | None
) -> tuple[str, Download] | None:
    """Return the newest version and its CSV, None if it is that of ``before``.

    Raise PriceListError, DownloadError.
    """
    url = f"{BASE_URL}/{provider}/version"
    response = downloader.get([url], MAX_VERSION_BYTES)
    assert response is not None
    version = response.body.decode("ascii", "replace").strip()
    if not VERSION.fullmatch(version):
        raise PriceListError(f"{url} is not a version: {version[:40]!r}")
    if before is not None and before.version == version:
        return None
    zipped = downloader.get([f"{BASE_URL}/{provider}/{version}/catalog.zip"], MAX_ZIP_BYTES)
    assert zipped is not None
    body = unzip_member(zipped.body, f"{provider}.csv", MAX_CSV_BYTES)
    return version, Download(zipped.url, body, zipped.etag, zipped.last_modified)


def unzip_member(body: bytes, name: str, max_bytes: int) -> bytes:
    """Return one member of a zip file. Raise PriceListError, also if it is too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive, archive.open(name) as member:
            text = member.read(max_bytes + 1)
    except KeyError:
        raise PriceListError(f"the zip file holds no {name}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        # RuntimeError: an encrypted member, or (NotImplementedError) an unknown compression.
        raise PriceListError(f"it is not a zip file: {error}") from None
    if len(text) > max_bytes:
        raise PriceListError(f"{name} is larger than {max_bytes:,} bytes when it is unzipped")
    return text


def version_day(version: str, last_modified: datetime | None) -> datetime | None:
    """Return when a version was made: its day, to the second where the server's date agrees."""
    matched = VERSION.fullmatch(version)
    if matched is None:
        return None
    try:
        day = datetime.strptime(matched[1], "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        raise PriceListError(f"version {version} is not dated") from None
    return last_modified if last_modified and last_modified.date() == day.date() else day


def dstack_parser(provider: str, kinds: tuple[CapacityType, ...]) -> Parse:
    """Return the parser of a provider's list, for these capacity types."""

    def parse(body: bytes, known: Catalog) -> ParsedPrices:
        return collect_prices(_listed(body, known, provider, kinds))

    return parse


def _listed(
    body: bytes, known: Catalog, provider: str, kinds: tuple[CapacityType, ...]
) -> Iterator[Listed]:
    for row in read_csv_rows(body, NEEDED):
        kind = _SPOT.get(row["spot"].lower())
        usd = parse_usd(row["price"])
        if kind not in kinds or kind is None or usd is None:
            continue
        region = _region(known, provider, row["location"])
        pool = rented_pool(known, provider, region, row["instance_name"], kind)
        if pool is not None:
            yield pool, usd


_SPOT = {"true": CapacityType.SPOT, "false": CapacityType.ON_DEMAND}


def _region(known: Catalog, provider: str, location: str) -> str:
    """Return the region of a location, which is a region or a zone."""
    if known.region(provider, location) is not None:
        return location
    try:
        return find_traits(provider).region_of_zone(location)
    except CatalogError:
        return location
