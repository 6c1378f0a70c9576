"""Prices of nodes: published by Google where it does, else the catalogue's.

The price of a machine is the sum of the SKUs of its parts in Cloud Billing: vCPUs, memory, GPUs and
bundled Local SSD. https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list
returns all SKUs of Compute Engine, page by page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from costopt.domain.errors import BadRequestError, ProviderError, ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import CapacityType
from costopt.provider.cache import TtlCache
from costopt_gcp.capacity import CapacityHistory, SpotPriceInterval
from costopt_gcp.clients import Clients, WebApi
from costopt_gcp.machine_types import MachineShape, MachineTypeInfo, MachineTypes, family
from costopt_gcp.quotas import Regions

MINUTES_10_S = 600.0
USABLE_S = 2 * 3600.0

NOT_ON_DEMAND = (
    "a3-highgpu-1g",
    "a3-highgpu-2g",
    "a3-highgpu-4g",
    "a3-ultragpu-*",
    "a4-*",
    "a4x-*",
)
"""What Google rents as Spot, by reservation or Flex-start alone, though Cloud Billing lists prices
(cloud.google.com/compute/docs/accelerator-optimized-machines, "Consumption option availability by
machine type"; as read in github.com/dstackai/gpuhunt/pull/176)."""

ListPrices = Callable[[str, str, str], Estimate | None]
"""A dated list of (provider, region, instance type), such as the catalogue's."""


class GcePrices:
    """``on_demand`` and ``spot`` are the dated lists, for prices that Google does not publish."""

    def __init__(
        self,
        clients: Clients,
        skus: SkuPrices,
        on_demand: ListPrices | None,
        spot: ListPrices | None,
    ) -> None:
        self._skus = skus
        self._history = CapacityHistory(clients)
        self._on_demand = on_demand
        self._dated_spot = spot
        self._kept: TtlCache[tuple[str, str], tuple[tuple[SpotPriceInterval, ...], datetime]] = (
            TtlCache(MINUTES_10_S, USABLE_S)
        )

    def history(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[SpotPriceInterval, ...]:
        """Return past and present spot prices, ascending. Raise ProviderError."""
        return self._intervals(region, instance_type, now)[0]

    def spot(self, region: str, instance_type: str, now: datetime) -> tuple[Estimate | None, str]:
        """Return the spot price in force, and why it is unknown ("" if it is known)."""
        try:
            intervals, seen_at = self._intervals(region, instance_type, now)
        except ProviderError as error:
            why_not = error.message
        else:
            price = in_force(intervals, seen_at)
            if price is not None and price.usd_per_hour is not None:
                source = f"Google Cloud spot price, unchanged since {price.at:%Y-%m-%d %H:%M}Z"
                return Estimate.exact(price.usd_per_hour, Basis.MEASURED, source, seen_at), ""
            why_not = "Google publishes no spot price of this type there"
        listed, why_unlisted = self._listed(region, instance_type, CapacityType.SPOT, now)
        return listed, "" if listed else f"{why_not}; {why_unlisted}"

    def on_demand(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[Estimate | None, str]:
        """Return the list price, and why there is none ("" if there is one)."""
        if any(fnmatchcase(instance_type, pattern) for pattern in NOT_ON_DEMAND):
            return None, f"Google does not rent {instance_type} on demand"
        return self._listed(region, instance_type, CapacityType.ON_DEMAND, now)

    def flex_start(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[Estimate | None, str]:
        """Return the price by Cloud Billing alone, and why there is none ("" if there is one)."""
        return self._skus.node(region, instance_type, CapacityType.FLEX_START, now)

    def _listed(
        self, region: str, instance_type: str, terms: CapacityType, now: datetime
    ) -> tuple[Estimate | None, str]:
        """Return the price by Cloud Billing, else by the dated list."""
        price, why_not = self._skus.node(region, instance_type, terms, now)
        dated = self._dated_spot if terms is CapacityType.SPOT else self._on_demand
        if price is None and dated is not None:
            price = dated("gcp", region, instance_type)
        return price, "" if price else f"{why_not}; the catalogue holds none"

    def _intervals(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[tuple[SpotPriceInterval, ...], datetime]:
        shape = MachineShape.parse(instance_type)
        if shape.accelerator is not None:
            raise BadRequestError(
                f"{region}: Google publishes no spot price of machines with attached GPUs "
                f"({instance_type})"
            )
        return self._kept.get(
            (region, instance_type),
            now,
            lambda: (self._history.prices(region, shape.machine_type), now),
        )


def in_force(prices: tuple[SpotPriceInterval, ...], at: datetime) -> SpotPriceInterval | None:
    """Return the price at ``at``; the last one holds for a day after the end of its interval."""
    begun = [price for price in prices if price.at <= at]
    if not begun:
        return None
    price = begun[-1]
    over = price.until is not None and at >= price.until + timedelta(days=1)
    return None if over else price


MACHINES = {
    "a3-megagpu": "a3plus instance",
    "a3-ultragpu": "a3ultra instance",
    "n1-highcpu": "n1 predefined instance",
    "n1-highmem": "n1 predefined instance",
    "n1-standard": "n1 predefined instance",
}
"""How SKUs call machines that are not called by their series ("g2 instance"). These names and those
of GPUs are from others who read the list: Cyclenerd/google-cloud-pricing-cost-calculator
(build/mapping.csv @08440e7) and dstackai/gpuhunt (src/gpuhunt/providers/gcp.py), on GitHub."""
GPUS = {
    "nvidia-a100-80gb": ("nvidia tesla a100 80gb gpu",),
    "nvidia-b200": ("a4 nvidia b200 (1 gpu slice)",),
    "nvidia-h100-80gb": ("nvidia h100 80gb gpu",),
    "nvidia-h100-mega-80gb": (
        "nvidia h100 80gb mega gpu",
        "nvidia h100 mega 80gb gpu",
        "nvidia h100 80gb plus gpu",
    ),
    "nvidia-h200-141gb": ("h200 141gb gpu", "nvidia h200 141gb gpu"),
    "nvidia-l4": ("nvidia l4 gpu",),
    "nvidia-rtx-pro-6000": ("rtx 6000 96gb",),
    "nvidia-tesla-a100": ("nvidia tesla a100 gpu",),
    "nvidia-tesla-p100": ("nvidia tesla p100 gpu",),
    "nvidia-tesla-p4": ("nvidia tesla p4 gpu",),
    "nvidia-tesla-t4": ("nvidia tesla t4 gpu",),
    "nvidia-tesla-v100": ("nvidia tesla v100 gpu",),
}
"""How SKUs call GPUs; some are called differently from region to region."""
SLICED = frozenset({"nvidia-b200"})
"""GPUs whose price is that of their part of the whole machine: there are no SKUs of A4's vCPUs and
memory (github.com/dstackai/gpuhunt/pull/176)."""
LOCAL_SSD = ("ssd backed local storage",)
SSD_GIB = 375.0
MONTH_H = 730.0
"""cloud.google.com/compute/disks-image-pricing: a partition of Local SSD; hours of a month."""

Part = tuple[tuple[str, ...], float]
"""The names that a part may go by, and how much of it a machine has."""


class SkuPrices:
    """Prices of nodes by region; a machine with a part that has no price has none."""

    def __init__(self, clients: Clients, regions: Regions, types: MachineTypes) -> None:
        self._skus = SkuCatalog(clients)
        self._regions = regions
        self._types = types

    def node(
        self, region: str, instance_type: str, terms: CapacityType, now: datetime
    ) -> tuple[Estimate | None, str]:
        """Return the price of a node, and why it is unknown ("" if it is known)."""
        shape = MachineShape.parse(instance_type)
        try:
            facts = self._facts(region, shape.machine_type, now)
            prices, asked_at = self._skus.prices(now)
        except ProviderError as error:
            return None, error.message
        usd, missing = node_usd_per_hour(prices, region, shape, facts, terms)
        if usd is None:
            return None, f"Cloud Billing has no {terms.value} price of {missing} in {region}"
        return Estimate.exact(usd, Basis.LISTED, "Cloud Billing SKUs", asked_at), ""

    def _facts(self, region: str, machine_type: str, now: datetime) -> MachineTypeInfo:
        for zone in self._regions.facts(region, now).zones:
            facts = self._types.of(zone, now).types.get(machine_type)
            if facts is not None:
                return facts
        raise BadRequestError(f"{region} has no {machine_type}")


def node_usd_per_hour(
    prices: PartPrices,
    region: str,
    shape: MachineShape,
    facts: MachineTypeInfo,
    terms: CapacityType,
) -> tuple[float | None, str]:
    """Return dollars per hour, else None and the part that has no price."""
    costs: list[float] = []
    for names, amount in parts(shape, facts):
        usd = next((u for n in names if (u := prices.get((n, terms, region))) is not None), None)
        if usd is None:
            return None, names[0]
        costs.append(usd * amount)
    return math.fsum(costs), ""


def parts(shape: MachineShape, facts: MachineTypeInfo) -> Iterator[Part]:
    """Return all parts that a machine is billed for by the hour, without its other disks."""
    if facts.accelerator in SLICED:
        yield GPUS[facts.accelerator], facts.accelerators
        return
    kind = shape.machine_type.rpartition("-")[0]
    machine = MACHINES.get(kind, f"{family(shape.machine_type)} instance")
    # On flex-start an "A3 Instance Core" is an "A3 Core".
    short = machine.removesuffix(" instance")
    yield (f"{machine} core", f"{short} core"), facts.vcpus
    yield (f"{machine} ram", f"{short} ram"), facts.memory_gib
    for name, count in (
        (facts.accelerator, facts.accelerators),
        (shape.accelerator, shape.accelerators),
    ):
        if name is not None:
            yield GPUS.get(name, (name,)), count
    if facts.ssd_partitions:
        yield LOCAL_SSD, facts.ssd_partitions * SSD_GIB / MONTH_H


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
    """The list of all SKUs, fetched once a day."""

    def __init__(self, clients: Clients) -> None:
        self._api = WebApi(clients, "cloudbilling.googleapis.com")
        self._kept: TtlCache[None, tuple[PartPrices, datetime]] = TtlCache(DAY_S, SKU_MAX_AGE_S)

    def prices(self, now: datetime) -> tuple[PartPrices, datetime]:
        """Return the prices of parts, and when they were fetched. Raise ProviderError."""
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
    """Return prices on demand, spot and flex-start, without parts that have two different ones."""
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
    """Return the terms, None for commitments. Only the description marks A4's spot price
    (github.com/dstackai/gpuhunt/pull/176), as it is of every flex-start price.
    """
    terms, description = TERMS.get(item["category"]["usageType"]), item["description"].lower()
    if terms is not None and FLEX_START in description:
        return CapacityType.FLEX_START
    spot = description.startswith("spot ")
    return CapacityType.SPOT if spot and terms is not None else terms


def part_of(description: str) -> str:
    """Return the part that a SKU prices, without its place and terms.

    "Spot Preemptible G2 Instance Core running in Iowa" is "g2 instance core".
    """
    found = _DESCRIPTION.fullmatch(description.lower())
    return description.lower() if found is None else found["part"]


def _usd(item: Mapping[str, Any]) -> float | None:
    """Return the newest price; None if it is free, in tiers or not in dollars."""
    if not item["pricingInfo"]:
        return None
    rates = item["pricingInfo"][-1]["pricingExpression"]["tieredRates"]
    if len(rates) != 1:
        return None
    price = rates[0]["unitPrice"]
    usd = int(price.get("units", 0)) + price.get("nanos", 0) / 1e9
    return usd if usd > 0 and price["currencyCode"] == "USD" else None
