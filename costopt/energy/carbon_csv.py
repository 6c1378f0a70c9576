"""The import of carbon intensities from CSV, hourly or in shorter intervals, as a carbon history.

The first column is the beginning of the interval, in UTC where it does not say otherwise; the
others are named by zones as Electricity Maps names them (DE, US-CAL-CISO), in gCO2e/kWh. Files of
one zone and year as Electricity Maps publishes them are read as well, several together. An empty
cell, and every hour that is left out or of which a part is, is a gap: never filled in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from costopt.catalog.csv_table import read_user_csv
from costopt.domain.errors import SignalError
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import HOUR, CarbonHistory

DAY = timedelta(days=1)
MAX_HOURS = 24 * 366 * 20
MAX_NAMED = 3
ELECTRICITY_MAPS_ZONE = "zone id"
INTENSITY, LIFE_CYCLE = "carbon intensity", ("life cycle", "lca")
"""As files of Electricity Maps begin and qualify the names of columns, in lower case."""


class _Cell(NamedTuple):
    """An intensity, and where it was read."""

    path: Path
    line: int
    value: float | None

    def refusal(self, what: str, hint: str | None = None) -> SignalError:
        return SignalError(f"{self.path}, line {self.line}: {what}", hint=hint)


_Cells = Mapping[datetime, _Cell]


def import_carbon_csv(
    paths: Sequence[Path], carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
) -> CarbonHistory:
    """Return the zones of all files (plain or .gz). Raises SignalError with line and column."""
    zones: dict[str, dict[datetime, _Cell]] = defaultdict(dict)
    for path in paths:
        for zone, at, cell in _read(path, carbon_signal):
            before = zones[zone].setdefault(at, cell)
            if before is not cell:
                raise cell.refusal(
                    f"{at:%Y-%m-%d %H:%MZ} of {zone} is in line {before.line} of {before.path}, too"
                )
    times = [at for cells in zones.values() for at in cells]
    first, last = _full_hour(min(times)), _full_hour(max(times))
    count = (last - first) // HOUR + 1
    names = ", ".join(path.name for path in paths[:MAX_NAMED])
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    if count > MAX_HOURS:
        raise SignalError(f"{names}{more} spans {count} hours", hint="check the years of its times")
    hourly = {zone: _hourly(zones[zone]) for zone in zones}
    hours = [first + index * HOUR for index in range(count)]
    return CarbonHistory(
        starts_at=first,
        zones={zone: tuple(map(known.get, hours)) for zone, known in hourly.items()},
        carbon_signal=carbon_signal,
        source=f"{carbon_signal.value} intensities of {names}{more}",
    )


def _read(path: Path, carbon_signal: CarbonSignal) -> Iterator[tuple[str, datetime, _Cell]]:
    """Yield the zone, beginning and intensity of each interval of a file."""
    header, rows = read_user_csv(path, SignalError)
    names = [name.strip().lower() for name in header]
    of_electricity_maps = ELECTRICITY_MAPS_ZONE in names
    if of_electricity_maps and carbon_signal is not CarbonSignal.AVERAGE:
        raise SignalError(
            f"{path} holds average intensities, as all files of Electricity Maps do",
            hint="import it with --signal average",
        )
    if of_electricity_maps:
        zone_at, column = names.index(ELECTRICITY_MAPS_ZONE), _intensity_column(path, names)
    elif len(header) < 2 or not all(header[1:]) or len(set(header)) != len(header):
        raise SignalError(
            f"{path}, line 1: no column of hours followed by columns of zones, each once",
            hint="the first line reads like: hour_utc,DE,FR,US-CAL-CISO",
        )
    if not rows:
        raise SignalError(f"{path} holds no hour", hint="one line per hour follows the first")
    for number, row in enumerate(rows, start=2):
        at = _time(path, number, row[0])
        if of_electricity_maps:
            yield row[zone_at], at, _cell(path, number, header[column], row[column])
            continue
        for zone, text in zip(header[1:], row[1:], strict=True):
            yield zone, at, _cell(path, number, zone, text)


def _intensity_column(path: Path, names: Sequence[str]) -> int:
    """Return the column of the intensity with the making of plants and fuels, if there is one."""
    found = [index for index, name in enumerate(names) if name.startswith(INTENSITY)]
    if not found:
        raise SignalError(
            f"{path}, line 1: no column of the carbon intensity",
            hint="download the file of carbon intensities from Electricity Maps",
        )
    return next((i for i in found if any(each in names[i] for each in LIFE_CYCLE)), found[0])


def _time(path: Path, line: int, text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise SignalError(f"{path}, line {line}: {text!r} is not a time") from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _cell(path: Path, line: int, column: str, text: str) -> _Cell:
    if not text.strip():
        return _Cell(path, line, None)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise SignalError(
            f"{path}, line {line}, column {column}: {text!r} is not an intensity",
            hint="gCO2e per kWh, 0 or more; empty means not recorded",
        )
    return _Cell(path, line, value)


def _hourly(cells: _Cells) -> dict[datetime, float | None]:
    """Return the mean of each hour, None where an interval of it was not recorded."""
    times = sorted(cells)
    interval = min((after - before for before, after in pairwise(times)), default=HOUR)
    if interval >= DAY:
        raise cells[times[1]].refusal(
            f"it begins {interval // DAY} d after the one before, as all do or more",
            hint="import means of an hour or less, not of days or months",
        )
    interval = min(interval, HOUR)  # hours may be missing
    hours: dict[datetime, list[float | None]] = defaultdict(list)
    for at in times:
        hour = _full_hour(at)
        if HOUR % interval or (at - hour) % interval:
            raise cells[at].refusal(
                f"{at:%Y-%m-%d %H:%M:%SZ} does not begin one of equal parts of an hour",
                hint="store means per hour, or per half, quarter or 5 minutes of it",
            )
        hours[hour].append(cells[at].value)
    return {hour: _mean(values, HOUR // interval) for hour, values in hours.items()}


def _mean(values: Sequence[float | None], count: int) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == count else None


def _full_hour(at: datetime) -> datetime:
    return at - timedelta(minutes=at.minute, seconds=at.second, microseconds=at.microsecond)
