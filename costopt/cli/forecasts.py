"""What prices and carbon intensities are expected to be until the deadline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from costopt.cli.quotes import QuoteSet
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal, Policy
from costopt.domain.series import Series

if TYPE_CHECKING:
    from costopt.energy.carbon_forecast import CarbonForecasts

SHOWN = 3


def forecast_prices(
    seen: QuoteSet, pools: Iterable[Pool], until: datetime
) -> Mapping[Pool, Series]:
    """Dollars per node-hour of the pools whose forecast has proven better than the present price.

    None for list prices, and from a record only what it held by now.
    """
    if seen.history is None:
        return {}
    from costopt.market.forecast import forecast_prices

    return forecast_prices(seen.history, pools, seen.now, until)


def forecast_carbon(
    seen: QuoteSet, policy: Policy, pools: Iterable[Pool], until: datetime
) -> CarbonForecasts:
    """gCO2e/kWh of the pools' regions, from recorded intensities of the policy's signal alone."""
    from costopt.catalog import load_catalog
    from costopt.energy.carbon_forecast import CarbonForecasts, forecast_carbon

    if seen.carbon is None or seen.carbon.carbon_signal is not policy.objective.carbon_signal:
        return CarbonForecasts({}, {})
    known = load_catalog()
    places = dict.fromkeys((pool.provider, pool.region) for pool in pools)
    regions = [region for place in places if (region := known.region(*place))]
    return forecast_carbon(seen.carbon, regions, seen.now, until)


def carbon_notes(seen: QuoteSet, policy: Policy, until: datetime) -> Iterator[str]:
    """Where the intensities that were given do not count, and why."""
    if seen.carbon is None:
        return
    asked, given = policy.objective.carbon_signal, seen.carbon.carbon_signal
    if asked is not given:
        kinds = {CarbonSignal.AVERAGE: "averages", CarbonSignal.MARGINAL: "marginal ones"}
        yield (
            f"policy {policy.name} counts {asked.value} intensities and the recorded ones are "
            f"{kinds[given]}: annual means count"
        )
        return
    allowed = [o.pool for o in seen.offers if policy.limits.rejection_reason(o.pool) is None]
    found = forecast_carbon(seen, policy, allowed, until)
    if found.missing:
        total = len(found.missing) + len(found.series)
        told = [f"{region}: {why}" for region, why in sorted(found.missing.items())]
        more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
        yield (
            f"no carbon forecast for {len(told)} of {total} regions, where annual means count "
            f"({'; '.join(told[:SHOWN])}{more})"
        )
