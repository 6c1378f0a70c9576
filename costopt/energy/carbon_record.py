"""Recorded intensities by region: a carbon history, and which grid zone each region lies in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon_history import CarbonHistory

FindRegion = Callable[[str, str], Region | None]


@dataclass(frozen=True, slots=True)
class RecordedCarbon:
    """Implements the port ``CarbonRecord``. ``region`` finds a region by provider and name."""

    history: CarbonHistory
    region: FindRegion

    def find(self, name: str) -> Region | None:
        """The region "provider/region", or None where it is unknown."""
        provider, _, region = name.partition("/")
        return self.region(provider, region)

    def intensity(
        self, region: str, hour_at: datetime, carbon_signal: CarbonSignal
    ) -> Estimate | None:
        """gCO2e/kWh of "provider/region" in the hour that begins at ``hour_at``.

        None where the hour, the region's grid zone or the signal was not recorded.
        """
        found = self.find(region)
        if carbon_signal is not self.history.carbon_signal or found is None:
            return None
        zone = found.electricity_maps_zone
        value = None if zone is None else self.history.at(zone, hour_at)
        if value is None:
            return None
        return Estimate.exact(value, Basis.MODELLED, self.history.source, hour_at)
