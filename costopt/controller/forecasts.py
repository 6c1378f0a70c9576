"""Expected prices, intensities and hazards: from the record before now, and as priors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.catalog import Catalog, load_catalog
from costopt.domain.estimate import Basis, Estimate, Series
from costopt.domain.fleet import Node
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.ports import Forecasts, HazardModel, PowerModel
from costopt.energy import NodePowerModel
from costopt.energy.carbon import HOUR, CarbonHistory, RecordedCarbon
from costopt.energy.live import LiveCarbon
from costopt.market.hazard import LearnedHazard


class RecordedForecasts:
    """Implements the Forecasts port over recorded prices, and recorded or live intensities.

    The drift of prices is estimated once an hour; in between, a series follows the present price.
    """

    def __init__(
        self, market: MarketHistory | None, carbon: RecordedCarbon | LiveCarbon | None = None
    ) -> None:
        self._market = market
        self._carbon = carbon
        self._made_at: datetime | None = None
        self._asked: tuple[frozenset[Pool], datetime] | None = None
        self._series: Mapping[Pool, Series] = {}
        self._carbon_asked: tuple[datetime, datetime, frozenset[str]] | None = None
        self._carbon_series: Mapping[str, Series] = {}

    def prices(
        self, pools: Collection[Pool], now: datetime, until: datetime
    ) -> Mapping[Pool, Series]:
        """Of the pools whose price is known now and whose drift has proven to go on."""
        if self._market is None:
            return {}
        asked = (frozenset(pools), until)
        if asked != self._asked or self._made_at is None or not _fresh(self._made_at, now):
            from costopt.market.forecast import forecast_prices

            self._series = forecast_prices(self._market, pools, now, until)
            self._asked, self._made_at = asked, now
        found: dict[Pool, Series] = {}
        for pool, series in self._series.items():
            present = self._market.pools[pool].at(now)
            if present is not None and present.price_usd_per_hour is not None:
                found[pool] = _from(series, now, present.price_usd_per_hour)
        return found

    def carbon(
        self, regions: Collection[str], now: datetime, until: datetime, carbon_signal: CarbonSignal
    ) -> Mapping[str, Series]:
        """Of the regions whose grid zone was recorded for long enough; none for another signal."""
        if isinstance(self._carbon, LiveCarbon):
            return self._carbon.carbon(regions, now, until, carbon_signal)
        if self._carbon is None or self._carbon.history.carbon_signal is not carbon_signal:
            return {}
        hour = now.replace(minute=0, second=0, microsecond=0)
        asked = (hour, until, frozenset(regions))
        if asked != self._carbon_asked:
            from costopt.energy.carbon_forecast import forecast_carbon

            found = (self._carbon.find(region) for region in sorted(regions))
            known = [region for region in found if region is not None]
            made = forecast_carbon(self._carbon.history, known, now, until)
            self._carbon_series, self._carbon_asked = made.series, asked
        return self._carbon_series


def _fresh(made_at: datetime, now: datetime) -> bool:
    return timedelta(0) <= now - made_at < HOUR


def _from(series: Series, now: datetime, usd_per_hour: float) -> Series:
    """The same drift from the present price on."""
    ratio = usd_per_hour / series.value(now)
    if ratio == 1.0:
        return series
    return replace(series, values=tuple(value * ratio for value in series.values))


# Between the calmest and the roughest of the twelve zones of the public 2022–2023 V100 and K80
# availability records (skypilot-org/spot-traces): 0.02 to 1 interruptions per hour of capacity.
DEFAULT_HAZARD = Estimate(0.2, 0.02, 1.0, Basis.PRIOR, "range of public spot availability records")


def gang_hazard_per_hour(hazards: HazardModel, nodes: tuple[Node, ...]) -> float | None:
    """Interruptions per hour of the gang, where the nodes of a pool go together; None where
    nothing is known of a member's pool."""
    total = 0.0
    for pool in dict.fromkeys(node.pool for node in nodes):
        known = hazards.hazard_per_hour(pool)
        if known is None:
            return None
        total += known.value
    return total


def catalog_hazard_priors(catalog: Catalog) -> Callable[[Pool], Estimate | None]:
    """The catalogue's prior of a spot pool's region and type, a wide one where it has none."""
    known = {
        (o.pool.provider, o.pool.region, o.pool.instance_type): o.hazard_per_hour
        for o in catalog.offers()
        if o.pool.capacity_type is CapacityType.SPOT and o.hazard_per_hour is not None
    }

    def prior(pool: Pool) -> Estimate | None:
        return known.get((pool.provider, pool.region, pool.instance_type), DEFAULT_HAZARD)

    return prior


def carbon_record(source: CarbonHistory | LiveCarbon | None) -> RecordedCarbon | LiveCarbon | None:
    """The history by region or the live intensities, None where none were given."""
    if isinstance(source, CarbonHistory):
        return RecordedCarbon(source, load_catalog().region)
    return source


@dataclass(frozen=True, slots=True)
class CatalogModels:
    """What is known and believed beside the market: the same for a run, a daemon and a backtest.

    Every call makes a fresh model. Can be sent to another process, unlike closures. Prices are
    forecast from the record so far if ``price_forecasts``, intensities from ``carbon``.
    """

    catalog: Catalog
    carbon: RecordedCarbon | LiveCarbon | None = None
    price_forecasts: bool = False

    def powers(self) -> PowerModel:
        """Power by the catalogue's figures."""
        return NodePowerModel(self.catalog)

    def hazards(self) -> LearnedHazard:
        """Priors of the catalogue, to be learned over."""
        return LearnedHazard(catalog_hazard_priors(self.catalog))

    def forecasts(self, market: MarketHistory | None) -> Forecasts:
        """Of what was asked for, from the record so far; ``market`` None: no price was recorded."""
        return RecordedForecasts(market if self.price_forecasts else None, self.carbon)
