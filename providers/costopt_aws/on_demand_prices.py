"""List prices, from the freshest source that can be had."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Estimate
from costopt_aws.price_file import PriceFile
from costopt_aws.pricing_api import PricingApi

ListPrices = Callable[[str, str, str], Estimate | None]
"""A dated list of (provider, region, instance type), such as the catalogue's."""


class OnDemandPrices:
    """The Pricing API, else the public price file, else a dated list that the caller has.

    Each price names its source and says when it was observed, so that its age can be shown.
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
        """List prices by instance type, and why the others are not known ("" where all are)."""
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
