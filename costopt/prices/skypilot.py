"""SkyPilot's catalog of AWS: spot and on-demand prices by availability zone.

Zones are zone IDs (use1-az1), which mean the same in every account. An empty price is not quoted;
local zones are left out. The file bears no date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from costopt.catalog.catalog import Catalog
from costopt.domain.market import CapacityType, Pool
from costopt.prices.price_list import (
    Listed,
    ParsedPrices,
    collect_prices,
    parse_usd,
    read_csv_rows,
    rented_pool,
)

DEFAULT_VERSION = "v8"
GITHUB_URL = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs"
BUCKET_URL = "https://skypilot-catalog.s3.us-east-1.amazonaws.com/catalogs"
MAX_BYTES = 32 * 2**20
NEEDED = ("InstanceType", "Price", "SpotPrice", "Region", "AvailabilityZone")
ZONE_ID = re.compile(r"[a-z]+\d+-az\d+")
"""A local zone has a city in between: use1-atl2-az1."""


def skypilot_urls(version: str) -> tuple[str, ...]:
    """Return the addresses of a version's list of AWS: the repository, then its mirror."""
    return tuple(f"{base}/{version}/aws/vms.csv" for base in (GITHUB_URL, BUCKET_URL))


def parse_skypilot_aws(body: bytes, known: Catalog) -> ParsedPrices:
    """Return spot prices by zone and on-demand prices by region."""
    return collect_prices(_listed(body, known))


def _listed(body: bytes, known: Catalog) -> Iterator[Listed]:
    for row in read_csv_rows(body, NEEDED):
        region, zone, name = row["Region"], row["AvailabilityZone"], row["InstanceType"]
        if ZONE_ID.fullmatch(zone) is None:
            continue
        listed = rented_pool(known, "aws", region, name, CapacityType.ON_DEMAND)
        usd = parse_usd(row["Price"])
        if listed is not None and usd is not None:
            yield listed, usd
        spot_usd = parse_usd(row["SpotPrice"])
        quoted = rented_pool(known, "aws", region, name, CapacityType.SPOT)
        if quoted is not None and spot_usd is not None:
            yield Pool("aws", region, zone, name, CapacityType.SPOT), spot_usd
