"""Forecasts of carbon intensity: the mean day of two weeks, moved to the present level.

The intensity h hours after the newest recorded hour t is P(t + h) + (c(t) − P(t)) · exp(−h / 72),
with c the recorded intensity and P the mean of the same hour of the day over the last 14 days.

Measured on hourly average intensities of 47 grid zones, October 2021 to December 2022 (public:
umassos/pause-resume, from Electricity Maps), mean absolute error of ``python -m benchmarks
forecast`` as a share of the zone's mean: 1 h 3.06 % (persistence 3.20 %), 6 h 6.04 % (10.66 %),
24 h 7.29 % (7.51 %), 72 h 9.88 % (10.76 %). Also tried, at 6 and 72 h: the same hour of yesterday
7.4 % and 10.6 %, of last week 11.2 % and 11.2 %, the mean day alone 9.2 % and 10.0 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from costopt.domain.estimate import Series
from costopt.domain.market import Region
from costopt.energy.carbon import HOUR, CarbonHistory

WINDOW_DAYS = 14
MIN_DAYS = 7
"""Days of the window on which an hour of the day must have been recorded."""
LEVEL_HOURS = 72.0
MAX_AGE_HOURS = 3
"""The newest recorded hour may have ended this long before now."""


@dataclass(frozen=True, slots=True)
class CarbonForecasts:
    """Series in gCO2e/kWh by "provider/region", and by the same key why a region has none."""

    series: Mapping[str, Series]
    missing: Mapping[str, str]


def forecast_carbon(
    history: CarbonHistory, regions: Iterable[Region], now: datetime, horizon_at: datetime
) -> CarbonForecasts:
    """Hourly from the hour of ``now`` to ``horizon_at``, from the hours that ended by ``now``.

    A zone with a gap that the forecast would have to fill in has none.
    """
    series: dict[str, Series] = {}
    missing: dict[str, str] = {}
    by_zone: dict[str, Series | str] = {}
    for region in regions:
        key, zone = f"{region.provider}/{region.name}", region.electricity_maps_zone
        if zone is None:
            missing[key] = "its grid zone is unknown"
            continue
        if zone not in by_zone:
            by_zone[zone] = _forecast(history, zone, now, horizon_at)
        found = by_zone[zone]
        if isinstance(found, Series):
            series[key] = found
        else:
            missing[key] = found
    return CarbonForecasts(series, missing)


def _forecast(
    history: CarbonHistory, zone: str, now: datetime, horizon_at: datetime
) -> Series | str:
    """The zone's series, or why there is none."""
    if zone not in history.zones:
        return f"{zone} is not in the record"
    past = (now - history.starts_at) // HOUR
    known = history.zones[zone][: max(past, 0)]
    newest = next((i for i in reversed(range(len(known))) if known[i] is not None), None)
    if newest is None:
        return f"{zone} was not recorded before {now:%Y-%m-%d %H:%MZ}"
    if past - newest > MAX_AGE_HOURS:
        ended_at = history.starts_at + (newest + 1) * HOUR
        return f"{zone} was last recorded at {ended_at:%Y-%m-%d %H:%MZ}, too long before"
    day = _mean_day(known[: newest + 1])
    if day is None:
        return f"{zone} was recorded on fewer than {MIN_DAYS} of {WINDOW_DAYS} days at some hour"
    present = known[newest]
    assert present is not None
    count = max(1, math.ceil((horizon_at - history.starts_at) / HOUR) - past)
    at = tuple(history.starts_at + (past + step) * HOUR for step in range(count))
    steps = range(past - newest, past - newest + count)
    values = (day[h % 24] + (present - day[0]) * math.exp(-h / LEVEL_HOURS) for h in steps)
    source = f"mean day of {WINDOW_DAYS} days at the present level: {zone}, {history.source}"
    return Series(at, tuple(max(0.0, value) for value in values), source)


def _mean_day(known: Sequence[float | None]) -> tuple[float, ...] | None:
    """The mean by hours after that of the newest value; None where an hour lacks days."""
    last = len(known) - 1
    day: list[float] = []
    for offset in range(24):
        newest = last - (24 - offset) % 24
        indices = range(newest, max(newest - 24 * WINDOW_DAYS, -1), -24)
        found = [value for index in indices if (value := known[index]) is not None]
        if len(found) < MIN_DAYS:
            return None
        day.append(fmean(found))
    return tuple(day)
