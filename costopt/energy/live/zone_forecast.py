"""The forecast of a zone: the service's own, else costopt's from the hours that are known."""

from __future__ import annotations

import math
from datetime import datetime

from costopt.domain.estimate import Series
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import HOUR, CarbonHistory, annual_gco2e_per_kwh
from costopt.energy.carbon_forecast import forecast_carbon
from costopt.energy.live.readings import hour_of
from costopt.energy.live.zone_cache import ZoneState

DAY_HOURS = 24


def zone_series(
    state: ZoneState,
    region: Region,
    now: datetime,
    until: datetime,
    service: str,
    carbon_signal: CarbonSignal,
) -> Series | str:
    """Return gCO2e/kWh from the hour of ``now`` to ``until``, or why there is no forecast."""
    ahead = _ahead(state, now)
    if not ahead:
        return _own_series(state, region, now, until, service, carbon_signal)
    fetched_at = state.fetched_at or now
    source = f"{service} forecast of {fetched_at:%Y-%m-%d %H:%MZ}"
    begin, count = hour_of(now), math.ceil((until - hour_of(now)) / HOUR)
    values = ahead[: max(1, count)]
    if len(values) < count:
        end = begin + len(values) * HOUR
        annual = annual_gco2e_per_kwh(region, carbon_signal)
        if len(ahead) >= DAY_HOURS:
            day = ahead[-DAY_HOURS:]
            values += [day[n % DAY_HOURS] for n in range(count - len(values))]
            source += f"; its last day again from {end:%Y-%m-%d %H:%MZ} on"
        elif annual is not None:
            values.append(annual)
            source += f"; the annual mean from {end:%Y-%m-%d %H:%MZ} on"
    return Series(tuple(begin + n * HOUR for n in range(len(values))), tuple(values), source)


def _ahead(state: ZoneState, now: datetime) -> list[float]:
    """Return what is known and forecast from the hour of ``now`` on, up to the first gap."""
    values: list[float] = []
    at = hour_of(now)
    present = state.hours.get(at)
    if present is not None and at not in state.forecast and at + HOUR in state.forecast:
        values.append(present.gco2e_per_kwh)
        at += HOUR
    while at in state.forecast:
        values.append(state.forecast[at])
        at += HOUR
    return values


def _own_series(
    state: ZoneState,
    region: Region,
    now: datetime,
    until: datetime,
    service: str,
    carbon_signal: CarbonSignal,
) -> Series | str:
    newest_at, zone = state.newest_at, region.electricity_maps_zone or ""
    if newest_at is None:
        return "no intensity of it is known"
    begin = min(state.hours)
    means = (state.hours.get(begin + n * HOUR) for n in range((newest_at - begin) // HOUR + 1))
    values = tuple(None if mean is None else mean.gco2e_per_kwh for mean in means)
    history = CarbonHistory(begin, {zone: values}, carbon_signal, f"hours of {service}")
    made = forecast_carbon(history, [region], now, until)
    key = f"{region.provider}/{region.name}"
    return made.series.get(key) or made.missing[key]
