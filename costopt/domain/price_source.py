"""Past prices of a provider, as its adapter tells them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from costopt.domain.estimate import Estimate
from costopt.domain.market import Pool


@dataclass(frozen=True, slots=True)
class PriceChange:
    """From ``at`` on a node of ``pool`` costs ``usd_per_hour``; None where it is not known."""

    pool: Pool
    at: datetime
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class PriceSeriesKey:
    """The past prices of an instance type in all zones of a region: what is asked for at once."""

    provider: str
    region: str
    instance_type: str


@runtime_checkable
class PriceSource(Protocol):
    """A provider that tells what its spot prices were, which ``costopt market record`` writes down.

    Every method may raise ``ProviderError``; calls may come from several threads at a time.
    """

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """What can be asked for in a region, in a fixed order.

        ``instance_types`` may hold wildcards ("p5*"); a type that the region does not sell is left
        out. Raises BadRequestError for a region that does not exist.
        """
        ...

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Changes of the spot price of every zone in [since, until), ascending for each pool.

        The price in force at ``since``, where one is known, comes as a change at or before it.
        """
        ...

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        """What a node costs on demand, or None where it is not known."""
        ...
