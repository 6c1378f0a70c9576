"""The services of carbon intensities, each in its documented form, and their keys.

Electricity Maps v3 (https://portal.electricitymaps.com/docs/api): hourly averages in gCO2eq/kWh.
WattTime v3 (https://docs.watttime.org): marginal emissions in lbs/MWh every 5 minutes.
Carbon Intensity API (https://carbon-intensity.github.io/api-definitions): averages of Great Britain
in gCO2/kWh every half hour; it needs no key.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from costopt.domain.account import CarbonSource, CarbonSourceName
from costopt.domain.errors import CarbonServiceError, SignalError
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.download import DownloadLimits
from costopt.energy.carbon import FindRegion
from costopt.energy.live.api import LIMITS, CarbonApi
from costopt.energy.live.live_carbon import LiveCarbon
from costopt.energy.live.readings import (
    CarbonService,
    Point,
    ZoneAnswer,
    hour_of,
    hourly_answer,
    malformed,
    read_field,
    read_number,
    read_rows,
    read_time,
)

HOUR_S, HALF_HOUR_S = 3600.0, 1800.0
MAX_KEY_BYTES = 4096
GREAT_BRITAIN = "GB"
UTC_FORM = "%Y-%m-%dT%H:%MZ"
HISTORY, PAST_RANGE = timedelta(hours=24), timedelta(days=10)
"""What Electricity Maps' history holds, and the longest span of hours that past-range returns."""
SANDBOX = "SANDBOX_MODE_DATA"
ROWS = {"past-range": "data"}
EMPTY: Mapping[str, str] = {}


def open_live_carbon(
    source: CarbonSource, region: FindRegion, folder: Path | None, limits: DownloadLimits = LIMITS
) -> LiveCarbon:
    """Return the service of an account, with its cache in ``folder``; no request is sent yet.

    What another address than the service's own answers has a folder of its own.

    Raise SignalError if its key file cannot be used.
    """
    service: CarbonService
    if folder is not None and source.url != source.name.url:
        folder = folder / sha256(source.url.encode()).hexdigest()[:12]
    match source.name:
        case CarbonSourceName.ELECTRICITY_MAPS:
            service = ElectricityMaps(source.url, read_key(source), limits)
        case CarbonSourceName.WATTTIME:
            service = WattTime(source.url, read_key(source), limits)
        case CarbonSourceName.GB_CARBON_INTENSITY:
            service = GreatBritain(source.url, limits)
    return LiveCarbon(service, region, folder, source.key_file)


def read_key(source: CarbonSource) -> str:
    """Return the one line of the key file. Raise SignalError, which never holds the key."""
    path, name = source.key_file, source.name.value
    if path is None:
        raise SignalError(
            f"{name} needs a key, and no file of it is named",
            hint="name it as key_file in the section carbon of the account file, or in "
            "COSTOPT_CARBON_KEY_FILE",
            code="no_key",
        )
    try:
        with path.open("rb") as file:
            text = file.read(MAX_KEY_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise SignalError(
            f"key file {path} of {name} cannot be read: {error.strerror}",
            hint="check the path and its permissions",
            code="no_key",
        ) from None
    except UnicodeDecodeError:
        text = ""
    form = r"[!-~]+:[!-~]+" if source.name is CarbonSourceName.WATTTIME else r"[!-~]+"
    if len(text) > MAX_KEY_BYTES or not re.fullmatch(form, text):
        wanted = "USER:PASSWORD" if source.name is CarbonSourceName.WATTTIME else "the key"
        raise SignalError(
            f"key file {path} of {name} is not one line of plain text",
            hint=f"the file holds {wanted} and nothing else",
            code="no_key",
        )
    return text


class ElectricityMaps:
    """Hourly averages. All but the latest may be refused, as the key's plan says."""

    name = CarbonSourceName.ELECTRICITY_MAPS.value
    carbon_signal = CarbonSignal.AVERAGE

    def __init__(self, url: str, key: str, limits: DownloadLimits = LIMITS) -> None:
        self._headers = {"auth-token": key}
        self._api = CarbonApi(url, [key], limits)
        self._keeps_past = True

    def zone(self, region: Region) -> str | None:
        """Return the catalog's zone."""
        return region.electricity_maps_zone

    def fetch(self, zone: str, since: datetime, now: datetime) -> ZoneAnswer:
        """Return the last 24 hours, which is what the service keeps for every plan, and the next;
        older hours from ``since`` on where the key's plan has them.

        Raise CarbonServiceError.
        """
        measured, _ = self._optional("history", zone)
        if not any(point.at >= hour_of(now) for point in measured):
            measured += self._points("latest", zone)
        older = self._older(zone, since, hour_of(now) - HISTORY)
        forecast, missing = self._optional("forecast", zone)
        return hourly_answer([*older, *measured], forecast, now, missing)

    def _older(self, zone: str, begin: datetime, end: datetime) -> list[Point]:
        """Return the hours from ``begin`` until ``end``. A key without them is not asked again."""
        points: list[Point] = []
        while begin < end and self._keeps_past:
            until = min(begin + PAST_RANGE, end)
            span = {"start": begin.strftime(UTC_FORM), "end": until.strftime(UTC_FORM)}
            try:
                points += self._points("past-range", zone, span)
            except CarbonServiceError as error:
                if error.status not in (400, 401, 403, 404):
                    raise
                self._keeps_past = False
            begin = until
        return points

    def _optional(self, kind: str, zone: str) -> tuple[list[Point], str]:
        try:
            return self._points(kind, zone), ""
        except CarbonServiceError as error:
            if error.code != "refused":
                raise
            return [], error.message

    def _points(self, kind: str, zone: str, span: Mapping[str, str] = EMPTY) -> list[Point]:
        query = {"zone": zone, **span}
        body = self._api.get(f"v3/carbon-intensity/{kind}", query, self._headers)
        if read_field(body, "zone") != zone:
            raise malformed(f"it is not of zone {zone}")
        unit = body.get("unit", body.get("units", "gCO2eq/kWh"))
        if not re.fullmatch(r"gCO2(eq?)?/kWh", str(unit), re.IGNORECASE):
            raise malformed(f"its unit is {str(unit)[:40]!r}, not gCO2eq/kWh", "wrong_unit")
        if body.get("temporalGranularity", "hourly") != "hourly":
            raise malformed("it is not hourly")
        rows = [body] if kind == "latest" else read_rows(body, ROWS.get(kind, kind))
        if any(row.get("estimationMethod") == SANDBOX for row in rows):
            raise CarbonServiceError(
                "its key is one of the sandbox, whose intensities are made up", code="sandbox"
            )
        return [
            Point(
                hour_of(read_time(row, "datetime")),
                HOUR_S,
                read_number(row, "carbonIntensity"),
                final=row.get("isEstimated", False) is False,
            )
            for row in rows
            if read_field(row, "carbonIntensity") is not None
        ]


LBS_PER_MWH = 453.59237 / 1000
"""One pound per megawatt-hour in g/kWh."""


class WattTime:
    """Marginal operating emissions rates (co2_moer)."""

    name = CarbonSourceName.WATTTIME.value
    carbon_signal = CarbonSignal.MARGINAL
    _SIGNAL, _UNIT = "co2_moer", "lbs_co2_per_mwh"
    _HORIZON_HOURS = "72"
    _TOKEN_S = 25 * 60.0
    """A token is valid for 30 minutes."""

    def __init__(self, url: str, key: str, limits: DownloadLimits = LIMITS) -> None:
        self._basic = base64.b64encode(key.encode()).decode()
        self._api = CarbonApi(url, [key, key.partition(":")[2], self._basic], limits)
        self._lock = Lock()
        self._token: str | None = None
        self._token_until_s = 0.0

    def zone(self, region: Region) -> str | None:
        """Return the catalog's WattTime region."""
        return region.watttime_region

    def fetch(self, zone: str, since: datetime, now: datetime) -> ZoneAnswer:
        """Return what is known from ``since`` on and 72 hours ahead. Raise CarbonServiceError."""
        span = {"start": since.strftime(UTC_FORM), "end": now.strftime(UTC_FORM)}
        measured = list(self._points("historical", zone, span))
        try:
            ahead = {"horizon_hours": self._HORIZON_HOURS}
            forecast, missing = list(self._points("forecast", zone, ahead)), ""
        except CarbonServiceError as error:
            if error.code != "refused":
                raise
            forecast, missing = [], error.message
        return hourly_answer(measured, forecast, now, missing)

    def _points(self, kind: str, zone: str, more: dict[str, str]) -> Iterator[Point]:
        body = self._ask(f"v3/{kind}", {"region": zone, "signal_type": self._SIGNAL, **more})
        meta = read_field(body, "meta")
        if read_field(meta, "units") != self._UNIT:
            unit = str(meta["units"])[:40]
            raise malformed(f"its unit is {unit!r}, not {self._UNIT}", "wrong_unit")
        if read_field(meta, "signal_type") != self._SIGNAL or read_field(meta, "region") != zone:
            raise malformed(f"it is not {self._SIGNAL} of region {zone}")
        seconds = read_number(meta, "data_point_period_seconds")
        if not 0 < seconds <= HOUR_S:
            raise malformed(f"its points are {seconds:g} s apart")
        for row in read_rows(body, "data"):
            value = read_number(row, "value") * LBS_PER_MWH
            yield Point(read_time(row, "point_time"), seconds, value)

    def _ask(self, path: str, query: dict[str, str]) -> Any:
        """Ask with a token, and once more with a new one if it has expired."""
        token = self._login(expired=None)
        try:
            return self._api.get(path, query, {"Authorization": f"Bearer {token}"})
        except CarbonServiceError as error:
            if error.status != 401:
                raise
        token = self._login(expired=token)
        return self._api.get(path, query, {"Authorization": f"Bearer {token}"})

    def _login(self, expired: str | None) -> str:
        with self._lock:
            known = self._token
            if known and known != expired and time.monotonic() < self._token_until_s:
                return known
            body = self._api.get("login", {}, {"Authorization": f"Basic {self._basic}"})
            token = read_field(body, "token")
            if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,8192}", token):
                raise malformed("its login gives no token")
            self._api.hide(token)
            self._token, self._token_until_s = token, time.monotonic() + self._TOKEN_S
            return token


class GreatBritain:
    """Averages of Great Britain by the half hour; those that are over are measured."""

    name = CarbonSourceName.GB_CARBON_INTENSITY.value
    carbon_signal = CarbonSignal.AVERAGE

    def __init__(self, url: str, limits: DownloadLimits = LIMITS) -> None:
        self._api = CarbonApi(url, limits=limits)

    def zone(self, region: Region) -> str | None:
        """Return GB for regions on its grid."""
        return GREAT_BRITAIN if region.electricity_maps_zone == GREAT_BRITAIN else None

    def fetch(self, zone: str, since: datetime, now: datetime) -> ZoneAnswer:  # noqa: ARG002
        """Return what is known from ``since`` on and 48 hours ahead. Raise CarbonServiceError."""
        present = hour_of(now)
        past = self._rows(f"intensity/{since.strftime(UTC_FORM)}/{now.strftime(UTC_FORM)}")
        ahead = self._rows(f"intensity/{present.strftime(UTC_FORM)}/fw48h")
        measured = list(_half_hours([*past, *ahead], "actual"))
        forecast = list(_half_hours([*past, *ahead], "forecast"))
        return hourly_answer(
            (point for point in measured if point.at >= since),
            (point for point in forecast if point.at >= present),
            now,
        )

    def _rows(self, path: str) -> list[Any]:
        return read_rows(self._api.get(path, {}), "data")


def _half_hours(rows: list[Any], kind: str) -> Iterator[Point]:
    for row in rows:
        at, until = read_time(row, "from"), read_time(row, "to")
        if until - at != timedelta(seconds=HALF_HOUR_S):
            raise malformed(f"{at:%Y-%m-%d %H:%MZ} is not the begin of a half hour")
        intensity = read_field(row, "intensity")
        if read_field(intensity, kind) is not None:
            yield Point(at, HALF_HOUR_S, read_number(intensity, kind))
