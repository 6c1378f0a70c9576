"""The recorded carbon intensity of grid zones, hour by hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.policy import CarbonSignal

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class CarbonHistory:
    """gCO2e/kWh of each hour from ``starts_at``, by grid zone; None where it was not recorded.

    All zones have as many hours. ``carbon_signal`` says whether the intensities are averages or
    marginal. Raises ValueError for zones of unequal length, none at all, or a naive time.
    """

    starts_at: datetime
    zones: Mapping[str, tuple[float | None, ...]]
    carbon_signal: CarbonSignal
    source: str

    def __post_init__(self) -> None:
        if len({len(values) for values in self.zones.values()}) != 1 or not self.hours:
            raise ValueError("a carbon history needs zones of equally many hours, at least one")
        if self.starts_at.tzinfo is None:
            raise ValueError("a carbon history starts at an aware time")

    @property
    def hours(self) -> int:
        """How many hours are recorded."""
        return len(next(iter(self.zones.values())))

    @property
    def ends_at(self) -> datetime:
        """The end of the last hour."""
        return self.starts_at + self.hours * HOUR

    def at(self, zone: str, when: datetime) -> float | None:
        """The intensity of the hour that holds ``when``, None where it was not recorded."""
        index = (when - self.starts_at) // HOUR
        values = self.zones.get(zone, ())
        return values[index] if 0 <= index < len(values) else None
