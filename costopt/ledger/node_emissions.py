"""The emissions of a node, hour by hour: each hour's energy at the intensity recorded for it.

Energy of an hour without a recorded intensity counts at the annual mean of the node's region.
Beside that stand market-based emissions: each hour's energy at what a contract states for it. An
hour is numbered by whole hours since the epoch, energy is micro-watt-hours at the data centre's
meter, emissions are micrograms of CO2e.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.contracts import ContractKind
from costopt.domain.events import ElectricityContractsRecorded
from costopt.domain.policy import CarbonSignal
from costopt.ledger.node_meter import MS_PER_HOUR, to_milliseconds


@dataclass(slots=True)
class Emission:
    """``ugco2e`` is of energy whose intensity is known, by the hour or as an annual mean.

    ``hourly_uwh`` of the energy counts by the hour; the intensity of ``unknown_uwh`` is unknown.
    ``market_ugco2e`` is market-based; no contract states the electricity of ``uncontracted_uwh``.
    It is never changed in place: several hold it.
    """

    ugco2e: int = 0
    hourly_uwh: int = 0
    unknown_uwh: int = 0
    market_ugco2e: int = 0
    uncontracted_uwh: int = 0

    def plus(self, other: Emission, times: int = 1) -> Emission:
        """Return the sum of this and ``times`` the other; -1 subtracts it."""
        return Emission(
            self.ugco2e + times * other.ugco2e,
            self.hourly_uwh + times * other.hourly_uwh,
            self.unknown_uwh + times * other.unknown_uwh,
            self.market_ugco2e + times * other.market_ugco2e,
            self.uncontracted_uwh + times * other.uncontracted_uwh,
        )


ContractSpan = tuple[int | None, int | None, float, str]
"""A contract's first hour and the one after its last, None without a limit; gCO2e/kWh; its name."""


class HourlyIntensities:
    """gCO2e/kWh of a region's grid by the number of the hour, and of the contracts for it, those
    that take precedence first."""

    __slots__ = ("by_hour", "contracts")

    def __init__(self, contracts: tuple[ContractSpan, ...] = ()) -> None:
        self.by_hour: dict[int, float] = {}
        self.contracts = contracts

    def contract_at(self, hour: int) -> ContractSpan | None:
        """Return what states the electricity of an hour, None where nothing does."""
        for span in self.contracts:
            first, end = span[:2]
            if (first is None or first <= hour) and (end is None or hour < end):
                return span
        return None

    def contract_names(self, first: int, last: int) -> frozenset[str]:
        """Return the contracts that state electricity of the hours from ``first`` to ``last``."""
        edges = {edge for span in self.contracts for edge in span[:2] if edge is not None}
        hours = (first, *(edge for edge in edges if first < edge <= last))
        return frozenset(span[3] for hour in hours if (span := self.contract_at(hour)))


class ElectricityBooks:
    """What the ledger holds of a job's electricity: intensities and contracts."""

    def __init__(self) -> None:
        self.contracts: ElectricityContractsRecorded | None = None
        self._by_grid: dict[tuple[str, str], HourlyIntensities] = {}

    def intensities(self, region: str, carbon_signal: CarbonSignal) -> HourlyIntensities:
        """Return those of "provider/region" and a signal, which go on growing."""
        key = region, carbon_signal.value
        if key not in self._by_grid:
            self._by_grid[key] = HourlyIntensities(self._spans(region))
        return self._by_grid[key]

    def record_contracts(self, event: ElectricityContractsRecorded) -> None:
        """Replace the contracts."""
        self.contracts = event
        for (region, _), known in self._by_grid.items():
            known.contracts = self._spans(region)

    def _spans(self, region: str) -> tuple[ContractSpan, ...]:
        """Return the contracts of a region, then the residual mixes."""
        terms = () if self.contracts is None else self.contracts.contracts
        place = tuple(region.split("/", 1))
        found = [each for each in terms if not each[3] or place[-1] in each[3]]
        return tuple(
            (_hour(begins_at), _hour(ends_at), gco2e_per_kwh, name)
            for kind in ContractKind
            for name, provider, gco2e_per_kwh, _, begins_at, ends_at, its_kind in found
            if provider == place[0] and its_kind is kind
        )


class EmissionMeter:
    """Emissions of one node. The hours that are over are summed once.

    So ``reopen`` must be called where the energy or the intensity of such an hour changes.
    """

    __slots__ = ("_annual", "_closed", "_closed_ms", "_closed_uwh", "_launched_ms", "intensities")

    def __init__(
        self, launched_ms: int, annual: float | None, intensities: HourlyIntensities
    ) -> None:
        """``annual`` is the mean intensity for hours without one, None where it is unknown."""
        self._launched_ms = launched_ms
        self._annual = annual
        self.intensities = intensities
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
        if not self.intensities.by_hour and not self.intensities.contracts:
            return _emission(uwh_until(ms), None, self._annual, None)
        while (next_ms := _hour_end(self._closed_ms)) <= ms:
            uwh = uwh_until(next_ms)
            self._closed = self._closed.plus(self._part(self._closed_ms, uwh))
            self._closed_ms, self._closed_uwh = next_ms, uwh
        return self._closed.plus(self._part(self._closed_ms, uwh_until(ms)))

    def _part(self, from_ms: int, uwh: int) -> Emission:
        """Return the emissions since the last full hour, until the total energy is ``uwh``."""
        hour = from_ms // MS_PER_HOUR
        hourly, contract = self.intensities.by_hour.get(hour), self.intensities.contract_at(hour)
        return _emission(uwh - self._closed_uwh, hourly, self._annual, contract)


def signals_text(signals: frozenset[CarbonSignal | None]) -> str:
    """Return the names of the signals: "average", "marginal", "average and marginal"."""
    names = sorted("unknown" if signal is None else signal.value for signal in signals)
    return " and ".join(names)


def carbon_basis(signals: frozenset[CarbonSignal | None], hourly_uwh: int, uwh: int) -> str | None:
    """Return the basis of emissions: the signal, and the share of the energy that counts by hour.

    None where no energy was drawn.
    """
    if uwh <= 0:
        return None
    signal, share = signals_text(signals), hourly_uwh / uwh
    if share > 0.995:
        return f"{signal} intensity, hourly"
    if hourly_uwh <= 0:
        return f"{signal} intensity, annual mean"
    return f"{signal}, {share:.0%} hourly, rest annual mean"


def _emission(
    uwh: int, hourly: float | None, annual: float | None, contract: ContractSpan | None
) -> Emission:
    intensity = annual if hourly is None else hourly
    return Emission(
        0 if intensity is None else round(uwh * intensity / 1000),
        0 if hourly is None else uwh,
        uwh if intensity is None else 0,
        0 if contract is None else round(uwh * contract[2] / 1000),
        uwh if contract is None else 0,
    )


def _hour(at: datetime | None) -> int | None:
    return None if at is None else to_milliseconds(at) // MS_PER_HOUR


def _hour_end(ms: int) -> int:
    return (ms // MS_PER_HOUR + 1) * MS_PER_HOUR
