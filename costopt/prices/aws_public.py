"""AWS's own public files: the spot price feed of its price page, and the Spot Advisor.

The feed holds one price for each region and instance type, without a date. Its numbers are text,
"N/A*" where there is none; a size may occur twice; some regions have names of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from costopt.catalog.catalog import Catalog
from costopt.domain.errors import PriceListError
from costopt.domain.hazards import parse_spot_advisor
from costopt.domain.market import CapacityType
from costopt.prices.price_list import (
    Listed,
    ParsedPrices,
    collect_prices,
    decode_text,
    parse_usd,
    rented_pool,
)

SPOT_URL = "https://spot-price.s3.amazonaws.com/spot.js"
ADVISOR_URL = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
MAX_BYTES = 16 * 2**20
REGIONS = {
    "us-east": "us-east-1",
    "us-west": "us-west-1",
    "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
}


def parse_spot_feed(body: bytes, known: Catalog) -> ParsedPrices:
    """Return the spot prices of spot.js, which is JSON within ``callback(…);``."""
    text = decode_text(body)
    begin, end = text.find("("), text.rfind(")")
    document = _json(text[begin + 1 : end] if 0 <= begin < end else text)
    try:
        return collect_prices(_feed_prices(document, known))
    except (KeyError, TypeError, AttributeError) as error:
        raise PriceListError(f"it is not AWS's spot feed: {_text(error)}") from None


def _feed_prices(document: Any, known: Catalog) -> Iterator[Listed]:
    for area in document["config"]["regions"]:
        region = REGIONS.get(area["region"], area["region"])
        for family in area["instanceTypes"]:
            for size in family["sizes"]:
                pool = rented_pool(known, "aws", region, size["size"], CapacityType.SPOT)
                if pool is None:
                    continue
                for column in size["valueColumns"]:
                    text = column["prices"]["USD"]
                    if column["name"] != "linux" or text.startswith("N/A"):
                        continue
                    # A price of 0 stands for none as well.
                    if usd := parse_usd(text):
                        yield pool, usd


def parse_advisor(body: bytes, known: Catalog) -> ParsedPrices:
    """Return the interruption buckets of the Spot Advisor; its savings are a month's figures."""
    try:
        found = parse_spot_advisor(_json(decode_text(body)))
    except (KeyError, TypeError, AttributeError) as error:
        raise PriceListError(f"it is not the Spot Advisor's data: {_text(error)}") from None
    buckets = {
        (region, name): bucket.value
        for (region, name), bucket in found.items()
        if rented_pool(known, "aws", region, name, CapacityType.SPOT) is not None
    }
    if not buckets:
        raise PriceListError("it holds no instance type of the catalog")
    return ParsedPrices(buckets=buckets, rows=len(buckets))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PriceListError(f"it is not JSON: {error}; it begins {text[:40]!r}") from None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
