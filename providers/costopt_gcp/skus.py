"""Prices of the parts of machines, by the SKUs of Cloud Billing.

https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list: all SKUs of Compute
Engine, page by page. Machines are priced by part: vCPUs, memory, GPUs and bundled Local SSD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.market import CapacityType
from costopt.provider.cache import TtlCache
from costopt_gcp.clients import Clients
from costopt_gcp.web_api import WebApi

COMPUTE_ENGINE = "services/6F81-5844-456A"
METHOD = "cloudbilling.services.skus.list"
PAGE = 5000
DAY_S = 86400.0
SKU_MAX_AGE_S = 7 * DAY_S
TERMS = {"OnDemand": CapacityType.ON_DEMAND, "Preemptible": CapacityType.SPOT}
FLEX_START = "dws defined duration"
"""How SKUs call flex-start: "DWS Defined Duration A3 Core running in Americas" is 9A32-36B2-7FBC,
"Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas" 341A-49A5-0C07
(cloud.google.com/skus)."""
_TERMS = rf"(spot (preemptible )?|{FLEX_START} )?"
_DESCRIPTION = re.compile(rf"{_TERMS}(?P<part>.+?)( attached to {_TERMS}vms)?( running)?( in .+)?")

PartPrices = Mapping[tuple[str, CapacityType, str], float]
"""Dollars by part ("g2 instance core"), terms and region: per hour and vCPU, GiB or GPU, and per
month and GiB of Local SSD."""


class SkuCatalog:
    """The list of all of them, asked for once a day."""

    def __init__(self, clients: Clients) -> None:
        self._api = WebApi(clients, "cloudbilling.googleapis.com")
        self._kept: TtlCache[None, tuple[PartPrices, datetime]] = TtlCache(DAY_S, SKU_MAX_AGE_S)

    def prices(self, now: datetime) -> tuple[PartPrices, datetime]:
        """What parts cost, and when it was asked. Raises ProviderError."""
        return self._kept.get(None, now, lambda: (self._ask(), now))

    def _ask(self) -> PartPrices:
        pages = self._api.pages(
            METHOD, "Compute Engine", f"/v1/{COMPUTE_ENGINE}/skus", {"pageSize": PAGE}
        )
        items = [item for page in pages for item in page.get("skus", ())]
        try:
            return read_skus(items)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProviderUnavailableError(
                f"the SKUs of Cloud Billing cannot be read: {type(error).__name__}: {error}"
            ) from error


def read_skus(items: Iterable[Mapping[str, Any]]) -> PartPrices:
    """Prices on demand, on spot and on flex-start; what has two different prices is left out."""
    found: dict[tuple[str, CapacityType, str], set[float]] = {}
    for item in items:
        terms = _terms(item)
        usd = _usd(item)
        if terms is None or usd is None:
            continue
        part = part_of(item["description"])
        for region in item["serviceRegions"]:
            found.setdefault((part, terms, region), set()).add(usd)
    return {key: usd.pop() for key, usd in found.items() if len(usd) == 1}


def _terms(item: Mapping[str, Any]) -> CapacityType | None:
    """None for commitments. That A4's spot price is one is said in its description alone
    (github.com/dstackai/gpuhunt/pull/176), as it is of every flex-start price.
    """
    terms, description = TERMS.get(item["category"]["usageType"]), item["description"].lower()
    if terms is not None and FLEX_START in description:
        return CapacityType.FLEX_START
    spot = description.startswith("spot ")
    return CapacityType.SPOT if spot and terms is not None else terms


def part_of(description: str) -> str:
    """What a SKU prices, without where and on which terms.

    "Spot Preemptible G2 Instance Core running in Iowa" is "g2 instance core".
    """
    found = _DESCRIPTION.fullmatch(description.lower())
    return description.lower() if found is None else found["part"]


def _usd(item: Mapping[str, Any]) -> float | None:
    """The newest price; None where it is free, in tiers or not in dollars."""
    if not item["pricingInfo"]:
        return None
    rates = item["pricingInfo"][-1]["pricingExpression"]["tieredRates"]
    if len(rates) != 1:
        return None
    price = rates[0]["unitPrice"]
    usd = int(price.get("units", 0)) + price.get("nanos", 0) / 1e9
    return usd if usd > 0 and price["currencyCode"] == "USD" else None
