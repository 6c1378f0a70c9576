"""The CSV tables of the catalog as typed rows.

They hold instance types with the capacity types on which each is rented; regions; list prices and
spot quotes, in dollars per node-hour; the measured effect of GPU power caps on the speed and power
of training; recorded training times (see ``training_times``); what making the machines emitted; and
the price of moving data out of a region, in dollars per GiB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from costopt.catalog.csv_table import Row, parse_day, parse_number, read_table
from costopt.catalog.training_times import read_relative_mfus
from costopt.catalog.traits import find_traits
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.hazards import InterruptionBucket, hazard_from_interruption_bucket
from costopt.domain.market import CapacityType, Cooling, Gpu, InstanceType, Region
from costopt.domain.storage import StoragePrice
from costopt.domain.transfers import Transfer

InstanceTypeKey = tuple[str, str]
"""Provider and instance type."""


def read_instance_types() -> tuple[
    dict[InstanceTypeKey, InstanceType], dict[InstanceTypeKey, frozenset[CapacityType]]
]:
    """Instance types, and the capacity types on which each is rented (none: no longer)."""
    machines: dict[InstanceTypeKey, InstanceType] = {}
    terms: dict[InstanceTypeKey, frozenset[CapacityType]] = {}
    for row in read_table("instance_types"):
        key = row["provider"], row["instance_type"]
        machines[key] = _machine(row)
        terms[key] = frozenset(CapacityType(word) for word in row["terms"].split())
    mfus = read_relative_mfus([machine.gpu for machine in machines.values()])
    for key, machine in machines.items():
        gpu = replace(machine.gpu, relative_mfu=mfus.get(machine.gpu.model))
        machines[key] = replace(machine, gpu=gpu)
    return machines, terms


def _machine(row: Row) -> InstanceType:
    return InstanceType(
        provider=row["provider"],
        name=row["instance_type"],
        gpu=Gpu(
            model=row["gpu_model"],
            memory_gib=float(row["gpu_memory_gib"]),
            tdp_w=parse_number(row["gpu_tdp_w"]),
            idle_w=parse_number(row["gpu_idle_w"]),
            peak_tflops=float(row["gpu_peak_tflops"]),
            peak_precision=row["gpu_peak_precision"],
        ),
        gpu_count=int(row["gpu_count"]),
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        network_gbps=parse_number(row["network_gbps"]),
        cpu_idle_w_per_vcpu=float(row["cpu_idle_w_per_vcpu"]),
        cpu_max_w_per_vcpu=float(row["cpu_max_w_per_vcpu"]),
        source=row["source"],
        cooling=Cooling(row["cooling"]),
    )


RegionKey = tuple[str, str]
"""Provider and region."""


def read_regions() -> dict[RegionKey, Region]:
    """The newest year of each region; a figure that was not published is None."""
    return {
        (row["provider"], row["region"]): Region(
            provider=row["provider"],
            name=row["region"],
            pue=parse_number(row["pue"]),
            average_gco2e_per_kwh=parse_number(row["average_gco2e_per_kwh"]),
            marginal_gco2e_per_kwh=parse_number(row["marginal_gco2e_per_kwh"]),
            electricity_maps_zone=row["electricity_maps_zone"] or None,
            year=int(row["year"]),
            source=row["source"],
            watttime_region=row["watttime_region"] or None,
        )
        for row in read_table("regions")
    }


PriceKey = tuple[str, str, str]
"""Provider, region and instance type."""

# Zones of one region differ by about this much from the region's mean in published spot prices,
# and the saving is a mean over the trailing month.
SPOT_SPREAD = 0.25


@dataclass(frozen=True, slots=True)
class SpotQuote:
    """A region's spot price and the hazard to assume."""

    price_usd_per_hour: Estimate
    hazard_per_hour: Estimate | None


def read_list_prices() -> dict[PriceKey, Estimate]:
    """On-demand list prices; what is not listed is unknown."""
    return {
        _key(row): Estimate.exact(
            float(row["usd_per_hour"]), Basis.LISTED, row["source"], parse_day(row["observed_on"])
        )
        for row in read_table("list_prices")
    }


def read_spot_quotes(list_prices: Mapping[PriceKey, Estimate]) -> dict[PriceKey, SpotQuote]:
    """Spot prices: listed ones exact, modelled ones ± ``SPOT_SPREAD``, at most the list price."""
    return {
        _key(row): SpotQuote(
            price_usd_per_hour=_spot_price(row, list_prices.get(_key(row))),
            hazard_per_hour=_hazard(row),
        )
        for row in read_table("spot_quotes")
    }


def _key(row: Row) -> PriceKey:
    return row["provider"], row["region"], row["instance_type"]


def _spot_price(row: Row, list_price: Estimate | None) -> Estimate:
    value = float(row["usd_per_hour"])
    observed_at = parse_day(row["observed_on"])
    if row["basis"] == Basis.LISTED:
        return Estimate.exact(value, Basis.LISTED, row["source"], observed_at)
    high = value * (1 + SPOT_SPREAD)
    if list_price is not None:
        high = max(value, min(high, list_price.value))
    return Estimate(
        value, value * (1 - SPOT_SPREAD), high, Basis(row["basis"]), row["source"], observed_at
    )


def _hazard(row: Row) -> Estimate | None:
    bucket = row["interruption_bucket"]
    if bucket:
        seen_at = parse_day(row["bucket_observed_on"])
        return hazard_from_interruption_bucket(InterruptionBucket(int(bucket)), seen_at)
    return find_traits(row["provider"]).spot_hazard_per_hour(parse_day(row["observed_on"]))


@dataclass(frozen=True, slots=True)
class MeasuredCap:
    """``speed`` and ``gpu_power`` are shares of the same training's without the limit.

    Medians over ``workloads``; ``basis`` is MODELLED where another board of the same chip was
    measured.
    """

    gpu_model: str
    cap_w: float
    speed: float
    gpu_power: float
    workloads: int
    basis: Basis
    source: str


def read_power_caps() -> dict[str, tuple[MeasuredCap, ...]]:
    """The caps of each GPU model that has any, lowest watts first."""
    caps: dict[str, list[MeasuredCap]] = defaultdict(list)
    for row in read_table("power_caps"):
        cap = MeasuredCap(
            gpu_model=row["gpu_model"],
            cap_w=float(row["cap_w"]),
            speed=float(row["speed"]),
            gpu_power=float(row["gpu_power"]),
            workloads=int(row["workloads"]),
            basis=Basis(row["basis"]),
            source=row["source"],
        )
        caps[cap.gpu_model].append(cap)
    return {model: tuple(sorted(known, key=_watts)) for model, known in caps.items()}


HOURS_PER_YEAR = 8766.0
"""Of 365.25 days."""


@dataclass(frozen=True, slots=True)
class EmbodiedCarbon:
    """Grams of CO2e from making the share of a server that an instance takes, spread evenly over
    the server's lifetime."""

    gco2e_per_hour: float
    source: str


def read_embodied() -> dict[InstanceTypeKey, EmbodiedCarbon]:
    """What making each machine emitted: server × share of its vCPUs / lifetime, as in SCI."""
    return {
        (row["provider"], row["instance_type"]): EmbodiedCarbon(
            float(row["server_kgco2e"]) * 1000
            * float(row["vcpus"]) / float(row["server_vcpus"])
            / (float(row["lifetime_years"]) * HOURS_PER_YEAR),
            row["source"],
        )
        for row in read_table("embodied")
    }  # fmt: skip


def _watts(cap: MeasuredCap) -> float:
    return cap.cap_w


ANYWHERE = "*"

_WITHIN_A_REGION = Transfer(0.0, None, "reading an object store in its own region is free")


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """A row: beginnings of "provider/region" at both ends; the price is None where unknown."""

    origins: tuple[str, ...]
    destinations: tuple[str, ...]
    usd_per_gib: float | None
    source: str

    def matches(self, from_region: str, to_region: str) -> bool:
        """Whether the row applies to data moved from one region to the other."""
        return _begins(from_region, self.origins) and _begins(to_region, self.destinations)


def read_transfer_prices() -> tuple[TransferPrice, ...]:
    """Every row; of those that fit, the first counts."""
    return tuple(_price(row) for row in read_table("transfer_prices"))


def find_transfer(
    prices: tuple[TransferPrice, ...], from_region: str, to_region: str
) -> Transfer | None:
    """The list price between two "provider/region"; None where it is not known.

    No speed is listed: what a store delivers to a node is not published.
    """
    if from_region == to_region:
        return _WITHIN_A_REGION
    found = next((price for price in prices if price.matches(from_region, to_region)), None)
    if found is None or found.usd_per_gib is None:
        return None
    return Transfer(found.usd_per_gib, None, found.source)


def read_storage_prices() -> dict[str, StoragePrice]:
    """Prices of disks and object stores by "provider/region"."""
    return {
        f"{row['provider']}/{row['region']}": StoragePrice(
            parse_number(row["volume_usd_per_gib_month"]),
            parse_number(row["store_usd_per_gib_month"]),
            parse_number(row["usd_per_1000_puts"]),
            f"{row['source']}, {row['observed_on']}",
        )
        for row in read_table("storage_prices")
    }


def _price(row: Row) -> TransferPrice:
    source = ", ".join(filter(None, (row["source"], row["observed_on"])))
    origins, destinations = tuple(row["from"].split()), tuple(row["to"].split())
    return TransferPrice(origins, destinations, parse_number(row["usd_per_gib"]), source)


def _begins(region: str, beginnings: tuple[str, ...]) -> bool:
    return beginnings == (ANYWHERE,) or region.startswith(beginnings)
