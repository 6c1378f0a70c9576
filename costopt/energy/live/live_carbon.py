"""Live carbon intensities behind the ports: what was measured, and what is expected."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from costopt.domain.errors import CarbonServiceError
from costopt.domain.estimate import Basis, Estimate, Series
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.domain.ports import SignalProblem
from costopt.energy.carbon import FindRegion
from costopt.energy.carbon_forecast import CarbonForecasts
from costopt.energy.live.readings import CarbonService
from costopt.energy.live.zone_cache import (
    FailedRequest,
    ZoneState,
    read_zone,
    write_zone,
    zone_path,
)
from costopt.energy.live.zone_forecast import zone_series

MAX_PRESENT_AGE = timedelta(hours=2)
"""An intensity of an hour that began longer ago is not one of now."""
THREADS = 4
MAX_ZONES_NAMED = 3
PATIENCE_S = 10.0
"""How long plans wait for the service, all together."""
UNSERVED = "its grid is not served"


@dataclass(frozen=True, slots=True)
class PresentIntensity:
    """gCO2e/kWh of the newest known hour, which began at ``hour_at``, at most two hours ago."""

    gco2e_per_kwh: float
    hour_at: datetime
    final: bool


class LiveCarbon:
    """Implements the port ``CarbonRecord``, and ``carbon`` of the port ``Forecasts``.

    ``refresh`` asks the service; everything else answers from memory, of what was refreshed last,
    and notes which regions are used. Any method may be called in any thread. With ``folder``, what
    is known is stored there. ``key_file``: a request that was refused is repeated after it changed.
    """

    def __init__(
        self,
        service: CarbonService,
        region: FindRegion,
        folder: Path | None,
        key_file: Path | None = None,
    ) -> None:
        self._service = service
        self._region = region
        self._folder = folder
        self._key_file = key_file
        self._lock = Lock()
        self._used: dict[str, tuple[Region, str] | None] = {}
        self._states: dict[str, ZoneState] = {}
        self._asking: set[str] = set()
        self._patience_s = PATIENCE_S
        self._throttled: FailedRequest | None = None
        self._made: dict[tuple[str, int, datetime, datetime], Series | str] = {}
        self._revision = 0

    @property
    def revision(self) -> int:
        """Return a number that grows with every answer of the service, or other process's cache."""
        return self._revision

    @property
    def name(self) -> str:
        """Return the service's name."""
        return self._service.name

    @property
    def carbon_signal(self) -> CarbonSignal:
        """Return what the intensities are."""
        return self._service.carbon_signal

    def use(self, regions: Iterable[str]) -> None:
        """Refresh these "provider/region" from now on."""
        for name in regions:
            self._find(name)

    def zone(self, name: str) -> str | None:
        """Return the service's zone of "provider/region", or None where it serves none."""
        found = self._find(name)
        return None if found is None else found[1]

    def intensity(
        self, region: str, hour_at: datetime, carbon_signal: CarbonSignal
    ) -> Estimate | None:
        """Return gCO2e/kWh of "provider/region" in the hour that begins at ``hour_at``.

        None where it is not known (yet), or for the other signal.
        """
        if carbon_signal is not self.carbon_signal:
            return None
        state = self._state(region)
        mean = None if state is None else state.hours.get(hour_at.astimezone(UTC))
        if mean is None:
            return None
        source = self.name if mean.final else f"{self.name}, provisional"
        return Estimate.exact(mean.gco2e_per_kwh, Basis.MODELLED, source, hour_at)

    def present(self, region: str, now: datetime) -> PresentIntensity | None:
        """Return the newest known intensity, or None where it is of more than two hours ago."""
        state = self._state(region)
        known = [at for at in state.hours if at <= now] if state else []
        if state is None or not known or now - max(known) > MAX_PRESENT_AGE:
            return None
        mean = state.hours[max(known)]
        return PresentIntensity(mean.gco2e_per_kwh, max(known), mean.final)

    def carbon(
        self, regions: Collection[str], now: datetime, until: datetime, carbon_signal: CarbonSignal
    ) -> Mapping[str, Series]:
        """Return the forecasts of regions, as the port says; none for the other signal."""
        if carbon_signal is not self.carbon_signal:
            return {}
        return self.forecast(regions, now, until).series

    def forecast(self, regions: Iterable[str], now: datetime, until: datetime) -> CarbonForecasts:
        """Return the forecasts of "provider/region", and why others have none."""
        series: dict[str, Series] = {}
        missing: dict[str, str] = {}
        hour = now.replace(minute=0, second=0, microsecond=0)
        made: dict[tuple[str, int, datetime, datetime], Series | str] = {}
        for name in regions:
            found, state = self._find(name), self._state(name)
            if found is None or state is None:
                missing[name] = UNSERVED
                continue
            key = (name, id(state), hour, until)
            answer = self._made.get(key) or zone_series(
                state, found[0], now, until, self.name, self.carbon_signal
            )
            made[key] = answer
            if isinstance(answer, Series):
                series[name] = answer
            else:
                missing[name] = self._why(state, answer)
        self._made = made
        return CarbonForecasts(series, missing)

    def problems(self, now: datetime) -> Sequence[SignalProblem]:
        """Return what is wrong with the zones in use, one for each kind of problem."""
        found: dict[tuple[str, str], list[str]] = {}
        for zone in self._zones():
            state = self._states.get(zone, ZoneState())
            if state.failure is not None:
                found.setdefault((state.failure.code, state.failure.message), []).append(zone)
            elif state.newest_at is None or now - state.newest_at > MAX_PRESENT_AGE:
                newest = state.newest_at and f"{state.newest_at:%Y-%m-%d %H:%MZ}"
                if state.fetched_at is not None:
                    why = f"its newest intensity is of {newest or 'no hour'}"
                    found.setdefault(("stale", why), []).append(zone)
        return [
            SignalProblem(self.name, code, f"{_named(zones)}: {why}")
            for (code, why), zones in sorted(found.items())
        ]

    def ages_s(self, now: datetime) -> dict[tuple[str, str], float]:
        """Return, by service and zone in use, the seconds since its newest hour began."""
        newest = {zone: self._states.get(zone, ZoneState()).newest_at for zone in self._zones()}
        return {(self.name, zone): (now - at).total_seconds() for zone, at in newest.items() if at}

    def notes(self, now: datetime) -> Sequence[str]:
        """Return sentences on what is missing of the regions in use, and what counts instead."""
        ours = [
            f"{self.name}: {zone}: no forecast of the service, costopt's own counts where two "
            f"weeks of hours are known ({state.forecast_missing})"
            for zone in self._zones()
            if (state := self._states.get(zone)) is not None and state.forecast_missing
        ]
        return [*(f"{p.source}: {p.message}" for p in self.problems(now)), *ours]

    def prepare(self, regions: Iterable[str], now: datetime) -> None:
        """Use these regions and refresh, waiting for ten seconds in all such calls together."""
        self.use(regions)
        began_s = time.monotonic()
        self.refresh(now, self._patience_s)
        self._patience_s = max(0.0, self._patience_s - (time.monotonic() - began_s))

    def refresh(self, now: datetime, within_s: float | None = None) -> None:
        """Ask for the zones in use that are due, for at most ``within_s`` seconds.

        What takes longer arrives later. Nothing is raised: see ``problems``.
        """
        due: SimpleQueue[str] = SimpleQueue()
        key_changed_at = self._key_changed_at()
        count = 0
        for zone in self._zones():
            if zone not in self._asking and self._stored(zone).is_due(now, key_changed_at):
                self._asking.add(zone)
                due.put(zone)
                count += 1
        threads = [
            Thread(target=self._work, args=(due, now), daemon=True, name=f"carbon-{n}")
            for n in range(min(THREADS, count))
        ]
        until_s = None if within_s is None else time.monotonic() + within_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))

    def _work(self, due: SimpleQueue[str], now: datetime) -> None:
        while True:
            try:
                zone = due.get_nowait()
            except Empty:
                return
            try:
                self._fetch(zone, now)
            finally:
                self._asking.discard(zone)

    def _fetch(self, zone: str, now: datetime) -> None:
        state = self._states[zone]
        throttled = self._throttled
        if throttled is not None and throttled.at <= now < throttled.retry_at:
            self._keep(zone, state.with_failure(throttled))
            return
        try:
            answer = self._service.fetch(zone, state.since(now), now)
        except CarbonServiceError as error:
            failure = FailedRequest.of(error, now)
            if error.code == "throttled":
                self._throttled = failure
            self._keep(zone, state.with_failure(failure))
        else:
            self._keep(zone, state.with_answer(answer, now))

    def _keep(self, zone: str, state: ZoneState) -> None:
        self._states[zone] = state
        self._revision += 1
        if self._folder is not None:
            write_zone(zone_path(self._folder, self.name, zone), state)

    def _stored(self, zone: str) -> ZoneState:
        """Return the state, which another process may have stored since."""
        known = self._states.get(zone, ZoneState())
        if self._folder is not None:
            stored = read_zone(zone_path(self._folder, self.name, zone))
            if _changed_at(stored) > _changed_at(known):
                known = self._states[zone] = stored
                self._revision += 1
        return self._states.setdefault(zone, known)

    def _zones(self) -> list[str]:
        with self._lock:
            return sorted({found[1] for found in self._used.values() if found is not None})

    def _find(self, name: str) -> tuple[Region, str] | None:
        with self._lock:
            if name not in self._used:
                region = self._region(*name.split("/", 1)) if "/" in name else None
                zone = None if region is None else self._service.zone(region)
                self._used[name] = None if region is None or zone is None else (region, zone)
            return self._used[name]

    def _state(self, name: str) -> ZoneState | None:
        found = self._find(name)
        return None if found is None else self._states.get(found[1], ZoneState())

    def _why(self, state: ZoneState, otherwise: str) -> str:
        if state.failure is not None and not state.hours:
            return state.failure.message
        return otherwise

    def _key_changed_at(self) -> datetime | None:
        try:
            if self._key_file is not None:
                return datetime.fromtimestamp(self._key_file.stat().st_mtime, UTC)
        except OSError:
            pass
        return None


def _changed_at(state: ZoneState) -> datetime:
    failed_at = state.failure.at if state.failure is not None else None
    return max(
        filter(None, (state.fetched_at, failed_at)), default=datetime.min.replace(tzinfo=UTC)
    )


def _named(zones: Sequence[str]) -> str:
    more = len(zones) - MAX_ZONES_NAMED
    return ", ".join(zones[:MAX_ZONES_NAMED]) + (f" and {more} more" if more > 0 else "")
