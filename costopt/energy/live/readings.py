"""What carbon services answer: points in time that are checked, and the means of hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from costopt.domain.errors import CarbonServiceError
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import HOUR

MAX_GCO2E_PER_KWH = 2000.0
"""Above any grid: lignite alone emits about 1,200 g/kWh."""
MIN_COVERED_S = 1800.0
"""An hour that is over has a mean if points cover this much of it."""


@dataclass(frozen=True, slots=True)
class Point:
    """gCO2e/kWh for ``seconds`` from ``at`` on; ``final`` unless the service may still revise it.

    Raises CarbonServiceError for an intensity that no grid has.
    """

    at: datetime
    seconds: float
    gco2e_per_kwh: float
    final: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.gco2e_per_kwh <= MAX_GCO2E_PER_KWH:
            raise malformed(
                f"{self.gco2e_per_kwh:.6g} gCO2e/kWh at {self.at:%Y-%m-%d %H:%MZ} is not "
                f"between 0 and {MAX_GCO2E_PER_KWH:,.0f}",
                "nonsense",
            )


@dataclass(frozen=True, slots=True)
class HourMean:
    """gCO2e/kWh of an hour; ``final`` unless it is in progress, incomplete or an estimate."""

    gco2e_per_kwh: float
    final: bool


@dataclass(frozen=True, slots=True)
class ZoneAnswer:
    """Means of hours and forecast ones, in gCO2e/kWh, by the beginning of the hour.

    ``forecast_missing`` says why the service gave no forecast, and is empty if it did.
    """

    hours: Mapping[datetime, HourMean]
    forecast: Mapping[datetime, float]
    forecast_missing: str = ""


class CarbonService(Protocol):
    """A service of carbon intensities, of one signal. It may be asked in several threads."""

    @property
    def name(self) -> str:
        """The name in an account file, and in notes."""
        ...

    @property
    def carbon_signal(self) -> CarbonSignal:
        """What its intensities are."""
        ...

    def zone(self, region: Region) -> str | None:
        """Return the service's name of the region's grid, or None where it serves none."""
        ...

    def fetch(self, zone: str, since: datetime, now: datetime) -> ZoneAnswer:
        """Return what is known from ``since`` on, and the forecast. Raise CarbonServiceError."""
        ...


def malformed(what: str, code: str = "malformed") -> CarbonServiceError:
    """Return the error for an answer that is not in the documented form."""
    return CarbonServiceError(f"its answer cannot be used: {what}", code=code)


def read_field(body: Any, name: str) -> Any:
    """Return a field of an object. Raise CarbonServiceError if there is none."""
    if not isinstance(body, dict) or name not in body:
        raise malformed(f"it has no field {name}")
    return body[name]


def read_rows(body: Any, name: str) -> list[Any]:
    """Return a field that is a list. Raise CarbonServiceError if it is not."""
    rows = read_field(body, name)
    if not isinstance(rows, list):
        raise malformed(f"its field {name} is not a list")
    return rows


def read_number(row: Any, name: str) -> float:
    """Return a finite number. Raise CarbonServiceError if the field is none."""
    value = read_field(row, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise malformed(f"its field {name} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise malformed(f"its field {name} is too large", "nonsense") from None


def read_time(row: Any, name: str) -> datetime:
    """Return an instant in UTC. Raise CarbonServiceError for a time without a zone."""
    text = read_field(row, name)
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise malformed(f"its field {name} is not a time with a zone")


def hour_of(at: datetime) -> datetime:
    """Return the beginning of the hour that holds ``at``."""
    return at.replace(minute=0, second=0, microsecond=0)


@dataclass(slots=True)
class _Hour:
    measured: list[Point] = field(default_factory=list)
    forecast: list[Point] = field(default_factory=list)


def hourly_answer(
    measured: Iterable[Point], forecast: Iterable[Point], now: datetime, missing: str = ""
) -> ZoneAnswer:
    """Return the means of the hours, weighted by time.

    The hour of ``now`` has one if any of it was measured; the forecast stands for the rest of it.
    """
    by_hour: dict[datetime, _Hour] = {}
    for point in {point.at: point for point in measured}.values():
        by_hour.setdefault(hour_of(point.at), _Hour()).measured.append(point)
    for point in {point.at: point for point in forecast}.values():
        by_hour.setdefault(hour_of(point.at), _Hour()).forecast.append(point)
    present = hour_of(now)
    hours: dict[datetime, HourMean] = {}
    expected: dict[datetime, float] = {}
    for at, hour in sorted(by_hour.items()):
        known = {point.at for point in hour.measured}
        rest = [point for point in hour.forecast if point.at not in known]
        if at >= present and rest:
            expected[at] = _mean([*hour.measured, *rest])
        if at == present and hour.measured:
            hours[at] = HourMean(_mean([*hour.measured, *rest]), final=False)
        elif at < present and (covered_s := sum(p.seconds for p in hour.measured)) >= MIN_COVERED_S:
            whole = covered_s >= HOUR.total_seconds() and all(p.final for p in hour.measured)
            hours[at] = HourMean(_mean(hour.measured), whole)
    return ZoneAnswer(hours, expected, missing)


def _mean(points: list[Point]) -> float:
    return sum(p.gco2e_per_kwh * p.seconds for p in points) / sum(p.seconds for p in points)
