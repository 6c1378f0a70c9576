"""The catalog: instance types, regions, and what they cost on the date of the shipped tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from difflib import get_close_matches
from functools import cache

from costopt.catalog.tables import (
    EmbodiedCarbon,
    MeasuredCap,
    PriceKey,
    SpotQuote,
    find_transfer,
    read_embodied,
    read_instance_types,
    read_list_prices,
    read_power_caps,
    read_regions,
    read_spot_quotes,
    read_storage_prices,
    read_transfer_prices,
)
from costopt.domain.errors import CatalogError
from costopt.domain.estimate import Estimate
from costopt.domain.market import ON_DEMAND_HAZARD, CapacityType, InstanceType, Offer, Pool, Region
from costopt.domain.transfers import Transfer

ANY_ZONE = "*"
"""Suffix of a region's name that means any of its zones ("us-east-1*")."""


class Catalog:
    """The shipped tables. Implements the port ``Machines``. Unknown figures are None."""

    def __init__(self) -> None:
        self._machines, self._terms = read_instance_types()
        self._regions = read_regions()
        self._list_prices = read_list_prices()
        self._spot_quotes = read_spot_quotes(self._list_prices)
        self._power_caps: dict[str, tuple[MeasuredCap, ...]] | None = None
        self._embodied = read_embodied()
        self._transfer_prices = read_transfer_prices()
        self._storage_prices = read_storage_prices()
        self._offers: tuple[Offer, ...] | None = None

    def instance_type(self, pool: Pool) -> InstanceType | None:
        """The instance type of a pool, or None where the catalogue does not hold it."""
        return self._machines.get((pool.provider, pool.instance_type))

    def extended(self, machines: Iterable[InstanceType], regions: Iterable[Region]) -> Catalog:
        """Return this catalogue with further machines and regions, such as those of clusters."""
        more = copy(self)
        more._machines = self._machines | {(each.provider, each.name): each for each in machines}
        more._regions = self._regions | {(each.provider, each.name): each for each in regions}
        return more

    def instance_types(self) -> tuple[InstanceType, ...]:
        """Every instance type, by provider and name."""
        return tuple(self._machines.values())

    def get_instance_type(self, provider: str, name: str) -> InstanceType:
        """One instance type. Raises CatalogError with the nearest names."""
        self._check_provider(provider)
        found = self._machines.get((provider, name))
        if found is None:
            names = [machine.name for machine in self.find(provider=provider)]
            raise CatalogError(
                f"{provider} has no instance type {name!r} in the catalogue",
                hint=_nearest(name, names, "costopt catalog lists them all"),
            )
        return found

    def find(self, gpu: str | None = None, provider: str | None = None) -> tuple[InstanceType, ...]:
        """Instance types with this GPU ("H100" finds "H100-SXM5-80GB") of this provider.

        Raises CatalogError for a GPU or provider that the catalogue does not know at all; a GPU
        that only another provider has gives an empty answer.
        """
        if provider is not None:
            self._check_provider(provider)
        if gpu is not None:
            self._check_gpu(gpu)
        return tuple(
            machine
            for machine in self._machines.values()
            if (provider is None or machine.provider == provider)
            and (gpu is None or machine.gpu.matches_name(gpu))
        )

    def gpu_models(self) -> tuple[str, ...]:
        """Every GPU model, sorted."""
        return tuple(sorted({machine.gpu.model for machine in self._machines.values()}))

    def providers(self) -> tuple[str, ...]:
        """Every provider, sorted."""
        return tuple(sorted({provider for provider, _ in self._machines}))

    def region(self, provider: str, name: str) -> Region | None:
        """Return the region of this name, or None where the catalog does not hold it."""
        return self._regions.get((provider, name))

    def regions(self) -> tuple[Region, ...]:
        """Every region, by provider and name."""
        return tuple(self._regions.values())

    def transfer(self, from_region: str, to_region: str) -> Transfer | None:
        """Moving data between two "provider/region", or None where the price is not known.

        With what storage costs where they go.
        """
        found = find_transfer(self._transfer_prices, from_region, to_region)
        if found is None:
            return None
        return replace(found, storage=self._storage_prices.get(to_region))

    def terms(self, provider: str, name: str) -> frozenset[CapacityType]:
        """The capacity types on which an instance type is rented; empty for a retired one."""
        return self._terms.get((provider, name), frozenset())

    def power_caps(self, gpu_model: str) -> tuple[MeasuredCap, ...]:
        """The power limits that were measured on this GPU model, lowest first; () where none."""
        if self._power_caps is None:
            self._power_caps = read_power_caps()
        return self._power_caps.get(gpu_model, ())

    def embodied(self, pool: Pool) -> EmbodiedCarbon | None:
        """What an hour of one node takes of its machine's making, None where none is published."""
        return self._embodied.get((pool.provider, pool.instance_type))

    def list_price_usd_per_hour(
        self, provider: str, region: str, instance_type: str
    ) -> Estimate | None:
        """The on-demand list price of one node, or None where it is not known."""
        return self._list_prices.get((provider, region, instance_type))

    def spot_price_usd_per_hour(
        self, provider: str, region: str, instance_type: str
    ) -> Estimate | None:
        """The spot price of one node, listed or modelled, or None where it is not known."""
        quote = self._spot_quotes.get((provider, region, instance_type))
        return None if quote is None else quote.price_usd_per_hour

    def offers(self) -> tuple[Offer, ...]:
        """The built-in snapshot of the market: an offer per known price, any zone of the region.

        On-demand offers have a hazard of exactly 0; spot offers a prior (see
        ``costopt.domain.hazards``). The number of available nodes is unknown. Types that are not
        rented on these terms have no offer.
        """
        if self._offers is None:
            self._offers = tuple(self._on_demand_offers()) + tuple(self._spot_offers())
        return self._offers

    def _on_demand_offers(self) -> Iterator[Offer]:
        for key, price in self._list_prices.items():
            if CapacityType.ON_DEMAND in self.terms(key[0], key[2]):
                yield Offer(_pool(key, CapacityType.ON_DEMAND), price, ON_DEMAND_HAZARD, None)

    def _spot_offers(self) -> Iterator[Offer]:
        for key, quote in self._spot_quotes.items():
            if CapacityType.SPOT in self.terms(key[0], key[2]):
                yield _spot_offer(key, quote)

    def _check_provider(self, provider: str) -> None:
        known = self.providers()
        if provider not in known:
            raise CatalogError(
                f"no provider {provider!r} in the catalogue", hint=f"one of: {', '.join(known)}"
            )

    def _check_gpu(self, gpu: str) -> None:
        if any(machine.gpu.matches_name(gpu) for machine in self._machines.values()):
            return
        models = self.gpu_models()
        families = {model.split("-")[0] for model in models}
        raise CatalogError(
            f"no GPU model {gpu!r} in the catalogue",
            hint=_nearest(gpu.upper(), [*models, *families], f"one of: {', '.join(models)}"),
        )


@cache
def load_catalog() -> Catalog:
    """The catalogue, read once per process."""
    return Catalog()


def _pool(key: PriceKey, capacity_type: CapacityType) -> Pool:
    provider, region, instance_type = key
    return Pool(provider, region, region + ANY_ZONE, instance_type, capacity_type)


def _spot_offer(key: PriceKey, quote: SpotQuote) -> Offer:
    return Offer(
        _pool(key, CapacityType.SPOT), quote.price_usd_per_hour, quote.hazard_per_hour, None
    )


def _nearest(asked: str, known: Iterable[str], otherwise: str) -> str:
    matches = get_close_matches(asked, sorted(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(matches)}?" if matches else otherwise
