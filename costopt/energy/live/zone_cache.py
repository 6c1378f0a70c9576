"""What is known of one zone, in memory and as a file of the cache."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from costopt.domain.errors import CarbonServiceError
from costopt.energy.carbon import HOUR
from costopt.energy.live.readings import MAX_GCO2E_PER_KWH, HourMean, ZoneAnswer, hour_of
from costopt.store.atomic_file import write_atomic

HISTORY = timedelta(days=14) - HOUR
"""Hours that are asked for; the services limit a request to 14 days or more."""
KEPT = timedelta(days=16)
PUBLISHED_AFTER = timedelta(minutes=5)
"""When in an hour the services have its first figure, so that one request an hour is enough."""
RETRY_S = {"refused": 3600.0, "sandbox": 3600.0, "throttled": 900.0}
OTHER_RETRY_S = 300.0
MIN_RETRY_S, MAX_RETRY_S = 60.0, 86_400.0
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """Why the newest request failed, and when the next may be sent."""

    code: str
    message: str
    at: datetime
    retry_at: datetime

    @classmethod
    def of(cls, error: CarbonServiceError, now: datetime) -> FailedRequest:
        """Return the failure, with the wait that the service asks for or that suits the error."""
        wait_s = error.retry_after_s
        if wait_s is None:
            wait_s = RETRY_S.get(error.code, OTHER_RETRY_S)
        wait_s = min(max(wait_s, MIN_RETRY_S), MAX_RETRY_S)
        return cls(error.code, error.message, now, now + timedelta(seconds=wait_s))


@dataclass(frozen=True, slots=True)
class ZoneState:
    """Means of hours and the newest forecast of a zone; never changed in place."""

    hours: Mapping[datetime, HourMean] = field(default_factory=dict)
    forecast: Mapping[datetime, float] = field(default_factory=dict)
    forecast_missing: str = ""
    fetched_at: datetime | None = None
    failure: FailedRequest | None = None

    def is_due(self, now: datetime, key_changed_at: datetime | None) -> bool:
        """Return whether to ask: once an hour, later after a failure, at once with another key."""
        if self.failure is not None:
            new_key = key_changed_at is not None and key_changed_at > self.failure.at
            return new_key or not self.failure.at <= now < self.failure.retry_at
        if self.fetched_at is None or self.fetched_at > now:
            return True
        return hour_of(self.fetched_at - PUBLISHED_AFTER) < hour_of(now - PUBLISHED_AFTER)

    def since(self, now: datetime) -> datetime:
        """Return the first hour of the last two weeks that is not known for good."""
        hour_at = hour_of(now) - HISTORY
        while hour_at < hour_of(now) and hour_at in self.hours and self.hours[hour_at].final:
            hour_at += HOUR
        return hour_at

    def with_answer(self, answer: ZoneAnswer, now: datetime) -> ZoneState:
        """Return the state after an answer; a later mean of an hour replaces the earlier."""
        known = {**self.hours, **answer.hours}
        kept = {at: mean for at, mean in sorted(known.items()) if now - KEPT <= at <= now}
        return ZoneState(kept, answer.forecast, answer.forecast_missing, now)

    def with_failure(self, failure: FailedRequest) -> ZoneState:
        """Return the state after a failed request."""
        return replace(self, failure=failure)

    @property
    def newest_at(self) -> datetime | None:
        """Return the beginning of the newest hour that is known."""
        return max(self.hours, default=None)


def zone_path(folder: Path, service: str, zone: str) -> Path:
    """Return the file of a zone."""
    return folder / f"{service}-{re.sub(r'[^A-Za-z0-9_-]', '_', zone)}.json"


def write_zone(path: Path, state: ZoneState) -> None:
    """Write the file if that is possible: without it, more is asked for after the next start."""
    failure = state.failure
    body = {
        "schema": SCHEMA,
        "hours": {at.isoformat(): [h.gco2e_per_kwh, h.final] for at, h in state.hours.items()},
        "forecast": {at.isoformat(): value for at, value in state.forecast.items()},
        "forecast_missing": state.forecast_missing,
        "fetched_at": state.fetched_at and state.fetched_at.isoformat(),
        "failure": failure
        and [failure.code, failure.message, failure.at.isoformat(), failure.retry_at.isoformat()],
    }
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(body, allow_nan=False).encode())


def read_zone(path: Path) -> ZoneState:
    """Return what the file holds, nothing if it cannot be read or holds what no grid has."""
    try:
        body = json.loads(path.read_bytes())
        if body["schema"] != SCHEMA:
            return ZoneState()
        return _state(body)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ZoneState()


def _state(body: Any) -> ZoneState:
    failure = body["failure"]
    return ZoneState(
        {_time(at): HourMean(_checked(v), bool(final)) for at, (v, final) in body["hours"].items()},
        {_time(at): _checked(value) for at, value in body["forecast"].items()},
        str(body["forecast_missing"]),
        body["fetched_at"] and _time(body["fetched_at"]),
        failure
        and FailedRequest(str(failure[0]), str(failure[1]), _time(failure[2]), _time(failure[3])),
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _checked(value: float) -> float:
    if not 0 <= value <= MAX_GCO2E_PER_KWH:
        raise ValueError(value)
    return value
