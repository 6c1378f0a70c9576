"""The emissions of a node, hour by hour: each hour's energy at the intensity recorded for it.

Energy of an hour without a recorded intensity counts at the annual mean of the node's region. An
hour is numbered by whole hours since the epoch, energy is micro-watt-hours at the data centre's
meter, emissions are micrograms of CO2e.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costopt.domain.policy import CarbonSignal
from costopt.ledger.node_meter import MS_PER_HOUR


@dataclass(slots=True)
class Emission:
    """``ugco2e`` is of energy whose intensity is known, by the hour or as an annual mean.

    ``hourly_uwh`` of the energy counts by the hour; the intensity of ``unknown_uwh`` is unknown.
    It is never changed in place: several hold it.
    """

    ugco2e: int = 0
    hourly_uwh: int = 0
    unknown_uwh: int = 0

    def plus(self, other: Emission, times: int = 1) -> Emission:
        """Return the sum of this and ``times`` the other; -1 subtracts it."""
        return Emission(
            self.ugco2e + times * other.ugco2e,
            self.hourly_uwh + times * other.hourly_uwh,
            self.unknown_uwh + times * other.unknown_uwh,
        )


class HourlyIntensities:
    """gCO2e/kWh of a region, by the number of the hour."""

    __slots__ = ("by_hour",)

    def __init__(self) -> None:
        self.by_hour: dict[int, float] = {}


class EmissionMeter:
    """Emissions of one node. The hours that are over are summed once.

    So ``reopen`` must be called where the energy or the intensity of such an hour changes.
    """

    __slots__ = ("_annual", "_closed", "_closed_ms", "_closed_uwh", "_intensities", "_launched_ms")

    def __init__(
        self, launched_ms: int, annual: float | None, intensities: HourlyIntensities
    ) -> None:
        """``annual`` is the mean intensity for hours without one, None where it is unknown."""
        self._launched_ms = launched_ms
        self._annual = annual
        self._intensities = intensities
        self._closed_ms = launched_ms
        self._closed_uwh = 0
        self._closed = Emission()

    def reopen(self, ms: int) -> None:
        """Discard sums after ``ms``, as energy or intensities from then on have changed."""
        if ms < self._closed_ms:
            self._closed_ms, self._closed_uwh = self._launched_ms, 0
            self._closed = Emission()

    def until(self, ms: int, uwh_until: Callable[[int], int]) -> Emission:
        """Return the emissions from the launch until ``ms``; ``uwh_until`` returns the energy."""
        self.reopen(ms)
        if not self._intensities.by_hour:
            return _emission(uwh_until(ms), None, self._annual)
        while (next_ms := _hour_end(self._closed_ms)) <= ms:
            uwh = uwh_until(next_ms)
            self._closed = self._closed.plus(self._part(self._closed_ms, uwh))
            self._closed_ms, self._closed_uwh = next_ms, uwh
        return self._closed.plus(self._part(self._closed_ms, uwh_until(ms)))

    def _part(self, from_ms: int, uwh: int) -> Emission:
        """Return the emissions since the last full hour, until the total energy is ``uwh``."""
        hourly = self._intensities.by_hour.get(from_ms // MS_PER_HOUR)
        return _emission(uwh - self._closed_uwh, hourly, self._annual)


def carbon_basis(signals: frozenset[CarbonSignal | None], hourly_uwh: int, uwh: int) -> str | None:
    """Return the basis of emissions: the signal, and the share of the energy that counts by hour.

    None where no energy was drawn.
    """
    if uwh <= 0:
        return None
    names = sorted("unknown" if signal is None else signal.value for signal in signals)
    signal, share = " and ".join(names), hourly_uwh / uwh
    if share > 0.995:
        return f"{signal} intensity, hourly"
    if hourly_uwh <= 0:
        return f"{signal} intensity, annual mean"
    return f"{signal}, {share:.0%} hourly, rest annual mean"


def _emission(uwh: int, hourly: float | None, annual: float | None) -> Emission:
    intensity = annual if hourly is None else hourly
    if intensity is None:
        return Emission(unknown_uwh=uwh)
    return Emission(round(uwh * intensity / 1000), 0 if hourly is None else uwh)


def _hour_end(ms: int) -> int:
    return (ms // MS_PER_HOUR + 1) * MS_PER_HOUR
