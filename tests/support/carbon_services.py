"""The carbon services in their documented forms, on one loopback server.

Electricity Maps and WattTime want the keys below; intensities are set by zone and hour.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

EM_KEY = "em-key-5up3r53cr3t"
WT_KEY = "ada:wt-p455w0rd"
WT_TOKEN = "eyJhbGciOi.wt-t0k3n"
HOUR = timedelta(hours=1)
Intensity = Callable[[datetime], float]


def daily(at: datetime) -> float:
    """Clean at noon: 100 g/kWh at 12 h, 340 at midnight."""
    return 100.0 + 20.0 * abs(12 - at.astimezone(UTC).hour)


def form(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


class CarbonServer:
    """Answers from ``intensity`` at ``now``; the newest hour is ``lag`` old.

    ``status`` and ``body`` replace the answers at paths that begin so, ``change`` alters JSON.
    """

    def __init__(self, url: str, now: datetime) -> None:
        self.url = url
        self.now = now
        self.intensity: Intensity = daily
        self.by_zone: dict[str, Intensity] = {}
        self.lag = timedelta()
        self.asked: list[str] = []
        self.status: dict[str, tuple[int, dict[str, str]]] = {}
        self.body: dict[str, bytes] = {}
        self.change: Callable[[Any], Any] = lambda body: body
        self.slow_s = 0.0
        self.tokens = 0
        self.keeps_past = False

    @property
    def newest(self) -> datetime:
        """The hour of the newest intensity."""
        return (self.now - self.lag).replace(minute=0, second=0, microsecond=0)

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(request.path)
        path, query = unquote(parts.path), {k: v[0] for k, v in parse_qs(parts.query).items()}
        self.asked.append(unquote(request.path))
        if self.slow_s:
            time.sleep(self.slow_s)
        for begin, (status, headers) in self.status.items():
            if path.startswith(begin):
                return status, headers, json.dumps({"error": "as documented"}).encode()
        for begin, body in self.body.items():
            if path.startswith(begin):
                return 200, {}, body
        status, found = self._route(path, query, request)
        return status, {}, json.dumps(self.change(found)).encode()

    def _route(self, path: str, query: dict[str, str], request: BaseHTTPRequestHandler) -> Any:
        if path.startswith("/v3/carbon-intensity/"):
            if request.headers.get("auth-token") != EM_KEY:
                return 401, {"error": "Invalid auth-token"}
            kind = path.rsplit("/", 1)[1]
            if kind == "past-range":
                if not self.keeps_past:
                    return 403, {"error": "Forbidden"}
                return 200, self._past_range(query)
            return 200, self._electricity_maps(kind, query["zone"])
        if path == "/login":
            wanted = "Basic " + base64.b64encode(WT_KEY.encode()).decode()
            if request.headers.get("Authorization") != wanted:
                return 401, {"detail": "Unauthorized"}
            self.tokens += 1
            return 200, {"token": f"{WT_TOKEN}{self.tokens}"}
        if path in ("/v3/historical", "/v3/forecast"):
            if request.headers.get("Authorization") != f"Bearer {WT_TOKEN}{self.tokens}":
                return 401, {"detail": "Unauthorized"}
            return 200, self._watttime(path.rsplit("/", 1)[1], query)
        if path.startswith("/intensity/"):
            return 200, self._great_britain(path)
        return 404, {"error": "not found"}

    def _of(self, zone: str, at: datetime) -> float:
        return self.by_zone.get(zone, self.intensity)(at)

    def _row(self, zone: str, at: datetime) -> dict[str, Any]:
        return {
            "zone": zone, "carbonIntensity": round(self._of(zone, at)), "datetime": form(at),
            "updatedAt": form(self.now), "createdAt": form(at),
            "isEstimated": at >= self.newest, "emissionFactorType": "lifecycle",
            "estimationMethod": "TIME_SLICER_AVERAGE" if at >= self.newest else None,
        }  # fmt: skip

    def _past_range(self, query: dict[str, str]) -> Any:
        begin, end = (datetime.fromisoformat(query[k]) for k in ("start", "end"))
        hours = [begin + n * HOUR for n in range((end - begin) // HOUR)]
        rows = [self._row(query["zone"], at) for at in hours]
        return {"zone": query["zone"], "data": rows, "temporalGranularity": "hourly"}

    def _electricity_maps(self, kind: str, zone: str) -> Any:
        if kind == "latest":
            return {**self._row(zone, self.newest), "temporalGranularity": "hourly"}
        if kind == "history":
            hours = [self.newest - n * HOUR for n in range(24, 0, -1)]
            return {"zone": zone, "history": [self._row(zone, at) for at in hours]}
        hours = [self.newest + n * HOUR for n in range(25)]
        rows = [
            {"carbonIntensity": round(self._of(zone, at)), "datetime": form(at)} for at in hours
        ]
        return {"zone": zone, "forecast": rows, "updatedAt": form(self.now)}

    def _watttime(self, kind: str, query: dict[str, str]) -> Any:
        step = timedelta(minutes=5)
        if kind == "historical":
            begin, end = (datetime.fromisoformat(query[k]) for k in ("start", "end"))
            end = min(end, self.newest + (self.now - self.newest) - self.lag)
        else:
            begin = self.now.replace(minute=self.now.minute // 5 * 5, second=0, microsecond=0)
            end = begin + int(query["horizon_hours"]) * HOUR
        count = max(0, (end - begin) // step)
        lbs = 1000 / 453.59237
        return {
            "data": [
                {
                    "point_time": (begin + n * step).isoformat(),
                    "value": round(self.intensity(begin + n * step) * lbs, 6),
                    "last_updated": self.now.isoformat(),
                }
                for n in range(count)
            ],
            "meta": {
                "data_point_period_seconds": 300, "region": query["region"], "warnings": [],
                "signal_type": query["signal_type"], "model": {"date": "2026-03-01"},
                "units": "lbs_co2_per_mwh", "generated_at": self.now.isoformat(),
            },
        }  # fmt: skip

    def _great_britain(self, path: str) -> Any:
        begin, until = path.split("/")[2:4]
        first = datetime.fromisoformat(begin)
        last = first + 48 * HOUR if until == "fw48h" else datetime.fromisoformat(until)
        half = timedelta(minutes=30)
        rows = []
        for n in range(-1, (last - first) // half + 1):
            at = first + n * half
            value = round(self.intensity(at))
            over = at + half <= self.now - self.lag
            rows.append(
                {
                    "from": at.strftime("%Y-%m-%dT%H:%MZ"),
                    "to": (at + half).strftime("%Y-%m-%dT%H:%MZ"),
                    "intensity": {
                        "forecast": value + 3, "actual": value if over else None, "index": "low",
                    },
                }
            )  # fmt: skip
        return {"data": rows}


@contextmanager
def serve_carbon(now: datetime) -> Iterator[CarbonServer]:
    """Serve on loopback while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = made.answer(self)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = CarbonServer(f"http://127.0.0.1:{server.server_address[1]}", now)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
