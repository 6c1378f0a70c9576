"""Carbon intensity of a region: its annual mean, average or marginal.

The two signals reverse rankings (aws eu-north-1: average 25, marginal 791 g/kWh), so which one
counts is the policy's choice and never a default in silence.
"""

from __future__ import annotations

from datetime import UTC, datetime

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal

# 5th and 95th percentile of the hourly over the mean average intensity, median of 47 grid zones,
# October 2021 to December 2022 (Electricity Maps, umassos/pause-resume). Marginal intensities
# have no such record here; they are given the same spread.
HOURLY_LOW, HOURLY_HIGH = 0.74, 1.24


class AnnualCarbon:
    """The annual mean of a region as a constant, in gCO2e/kWh. Implements the port ``Signal``."""

    def __init__(self, region: Region, carbon_signal: CarbonSignal) -> None:
        self._estimate = _annual_estimate(region, carbon_signal)

    def at(self, when: datetime) -> Estimate | None:  # noqa: ARG002 - constant over time
        """The annual mean with the spread of single hours, or None where it is unknown."""
        return self._estimate


def annual_gco2e_per_kwh(region: Region, carbon_signal: CarbonSignal) -> float | None:
    """The region's figure for this signal, or None where it was not published."""
    if carbon_signal is CarbonSignal.MARGINAL:
        return region.marginal_gco2e_per_kwh
    return region.average_gco2e_per_kwh


def _annual_estimate(region: Region, carbon_signal: CarbonSignal) -> Estimate | None:
    value = annual_gco2e_per_kwh(region, carbon_signal)
    if value is None:
        return None
    return Estimate(
        value=value,
        low=value * HOURLY_LOW,
        high=value * HOURLY_HIGH,
        basis=Basis.MODELLED,
        source=f"annual {carbon_signal.value} intensity: {region.source}",
        observed_at=datetime(region.year, 12, 31, tzinfo=UTC),
    )
