"""List prices and spot quotes, in dollars per node-hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costopt.catalog.table import Row, parse_day, read_table
from costopt.catalog.traits import find_traits
from costopt.domain.bucket import InterruptionBucket, hazard_from_interruption_bucket
from costopt.domain.estimate import Basis, Estimate

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
    bucket, observed_at = row["interruption_bucket"], parse_day(row["observed_on"])
    if bucket:
        return hazard_from_interruption_bucket(InterruptionBucket(int(bucket)), observed_at)
    return find_traits(row["provider"]).spot_hazard_per_hour(observed_at)
