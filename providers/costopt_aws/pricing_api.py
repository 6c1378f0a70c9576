"""On-demand prices from the Pricing API."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.provider.cache import TtlCache, fan_out
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

HOME = "us-east-1"
"""The API answers in few regions, for all of them."""

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
    """GetProducts, once a day for each instance type: one answer holds all regions."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[str, tuple[Mapping[str, float], datetime]] = TtlCache(
            DAY_S, PRICING_API_MAX_AGE_S
        )

    def prices(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> Mapping[str, Estimate]:
        """List prices of a region by instance type; types without one are left out.

        Raises ProviderError where none could be had.
        """
        names = sorted(instance_types)
        if not names:
            return {}
        answers = {names[0]: self._usd_per_hour(names[0], now)}
        due = [name for name in names[1:] if not self._kept.is_fresh(name, now)]
        told = fan_out(due, lambda name: self._usd_per_hour(name, now))
        for name in names[1:]:
            answer = told[name] if name in told else self._usd_per_hour(name, now)
            if not isinstance(answer, ProviderError):
                answers[name] = answer
        return {
            name: Estimate.exact(usd[region], Basis.LISTED, "AWS Pricing API", asked_at)
            for name, (usd, asked_at) in answers.items()
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
    """Dollars per hour by region; a region with two different prices is left out."""
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
