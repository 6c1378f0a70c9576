"""Meters that are read over HTTP: the whole node's by Redfish, its GPUs' by the DCGM exporter.

Redfish is spoken by a server's management controller (BMC). A chassis names EnvironmentMetrics,
with PowerWatts and EnergykWh, or in older firmware Power, with PowerControl[].PowerConsumedWatts.
(DMTF DSP0268, Redfish Schema Guide.) The DCGM exporter serves text in the form of Prometheus:
DCGM_FI_DEV_POWER_USAGE in W, DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION in mJ since the driver was
loaded, of each GPU. (NVIDIA DCGM, dcgm-exporter's default counters.)

A meter that does not answer is asked again. Its counter bridges the gap; power alone does not.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import ssl
import sys
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from costopt.agent.meters import MeterSample
from costopt.domain.errors import DownloadError
from costopt.download import Connect, Downloader, DownloadLimits
from costopt.web_connection import LOOPBACK

INTERVAL_S = 5.0
"""A BMC takes up to some seconds to answer and updates its readings about once a second."""
LIMITS = DownloadLimits(connect_s=2.0, read_s=4.0, total_s=4.5)
MAX_BYTES = 4_000_000
MAX_KEY_BYTES = 1000
MAX_GAP_S = 60.0
"""Power is not integrated over a longer time without a reading."""
UNREACHABLE_TIMEOUT_S = 300.0
"""A BMC restarts within some minutes; one that is unreachable for longer is read no more."""
MAX_STEP_J = 1.08e7
"""3 kWh: counters have steps of 1 kWh at most, so one that rests for this long is stuck."""
UNIT_RATIO = 20.0
"""A counter that differs from the power by more has another unit: kWh and Wh, W and mW. An idle
GPU whose power is read half a minute late may draw ten times as much."""
J_PER_KWH = 3.6e6


class EnergyTotal:
    """Joules from a power reading, and from a counter where there is one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: tuple[float, float] | None = None
        self._counter_j: float | None = None
        self._unsettled_j = 0.0
        self._stepped = False

    def add(self, now_s: float, watts: float, counter_j: float | None) -> float:
        """Return the joules since the last call.

        They are the integrated power until the counter steps, then what it counted. Raise
        ValueError if the counter contradicts the power, or nothing bridges a gap.
        """
        last, self._last = self._last, (now_s, watts)
        before, self._counter_j = self._counter_j, counter_j
        if last is None:
            return 0.0
        passed_s = now_s - last[0]
        drawn_j = (last[1] + watts) / 2 * passed_s
        grown_j = None if before is None or counter_j is None else counter_j - before
        stepped, self._stepped = self._stepped, grown_j is not None and grown_j >= 0
        expected_j, self._unsettled_j = self._unsettled_j + drawn_j, 0.0
        # A BMC may count in steps of a kWh: between two of them the power counts, and its sum
        # is settled at the next step.
        if grown_j == 0:
            self._stepped, self._unsettled_j = stepped, expected_j
            if expected_j > MAX_STEP_J:
                raise ValueError(f"its counter rests while it draws {watts:.4g} W")
            return drawn_j
        if grown_j is not None and grown_j < 0:
            _report(f"{self._name}: its counter was reset; its power counts for that time")
        # The first step covers an unknown time before the first reading.
        if grown_j is None or grown_j < 0 or not stepped:
            if passed_s > MAX_GAP_S:
                raise ValueError(f"no counter bridges {passed_s:.0f} s without an answer")
            return drawn_j
        if not expected_j / UNIT_RATIO <= grown_j <= expected_j * UNIT_RATIO:
            raise ValueError(
                f"its counter grew by {grown_j:.4g} J while its power says {expected_j:.4g} J: "
                "their units differ"
            )
        # The joules that power has counted since the last step are in the counter, too.
        return grown_j - (expected_j - drawn_j)


class NetworkMeter:
    """Reads one address every ``interval_s``; subclasses say what its answer means."""

    interval_s = INTERVAL_S

    def __init__(
        self, name: str, url: str, headers: Mapping[str, str], connect: Connect | None
    ) -> None:
        self.error = ""
        self.gpus = 0
        self._name = name
        self._url = url
        self._headers = headers
        self._downloader = Downloader(LIMITS, connect=connect)
        self._answered_s: float | None = None
        self._silent = False

    def sample(self, now_s: float) -> MeterSample | None:
        """Return the change since the last sample, None where the meter does not answer."""
        if self.error:
            return None
        try:
            body = self._fetch(self._url)
            found = self._read(body, now_s)
        except DownloadError as error:
            self._missed(now_s, error.message)
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.error = f"{self._name} is not used any more: {_text(error)}"
            return None
        if found is None:
            self._missed(now_s, f"{self._url} has no reading")
        else:
            if self._silent:
                _report(f"{self._name} answers again")
            self._answered_s, self._silent = now_s, False
        return found

    def close(self) -> None:
        """Nothing is open between samples."""

    def _read(self, body: bytes, now_s: float) -> MeterSample | None:
        raise NotImplementedError

    def _fetch(self, url: str) -> bytes:
        return self._downloader.fetch(url, MAX_BYTES, self._headers).body

    def _missed(self, now_s: float, why: str) -> None:
        if self._answered_s is None:
            self._answered_s = now_s
        if now_s - self._answered_s > UNREACHABLE_TIMEOUT_S:
            self.error = f"{self._name} is not used any more: {why}"
        elif not self._silent:
            _report(f"{self._name}: {why}")
        self._silent = True


class RedfishMeter(NetworkMeter):
    """The whole node's power by its BMC."""

    def __init__(self, url: str, headers: Mapping[str, str], connect: Connect) -> None:
        """Find the chassis of ``url``. Raise DownloadError, or ValueError if it has no power."""
        super().__init__("the node's meter", url, headers, connect)
        self._total = EnergyTotal(self._name)
        self._url = self._find(url)

    def _find(self, url: str) -> str:
        """Return the address of the newest form that has a reading."""
        parts = urlsplit(url)
        base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        if not path:
            listed = self._json(f"{base}/redfish/v1/Chassis").get("Members", [])
            members = [str(member["@odata.id"]) for member in listed]
            if len(members) != 1:
                raise ValueError(f"{url} has the chassis {', '.join(members)}: name one of them")
            path = members[0]
        chassis = self._json(f"{base}{path}")
        for form in ("EnvironmentMetrics", "Power"):
            link = chassis.get(form, {}).get("@odata.id")
            if link and _power_w(self._json(f"{base}{link}")) is not None:
                return f"{base}{link}"
        raise ValueError(f"{base}{path} has no power reading")

    def _json(self, url: str) -> dict[str, Any]:
        return _json_object(self._fetch(url))

    def _read(self, body: bytes, now_s: float) -> MeterSample | None:
        found = _json_object(body)
        watts = _power_w(found)
        if watts is None:
            return None
        kwh = _number(found.get("EnergykWh", {}).get("Reading"))
        return MeterSample(self._total.add(now_s, watts, None if kwh is None else kwh * J_PER_KWH))


class DcgmMeter(NetworkMeter):
    """The GPUs of one machine by the DCGM exporter."""

    def __init__(self, url: str) -> None:
        """Raise DownloadError, or ValueError if it lists no GPU's power."""
        super().__init__("the DCGM exporter", url, {}, None)
        listed = _gpu_figures(self._fetch(url))
        if not listed:
            raise ValueError(f"{url} lists no {POWER_W}")
        self.gpus = len(listed)
        self._totals = {uuid: EnergyTotal(f"the DCGM exporter, {uuid}") for uuid in listed}

    def _read(self, body: bytes, now_s: float) -> MeterSample | None:
        listed = _gpu_figures(body)
        if set(listed) != set(self._totals):
            return None
        joules = 0.0
        for uuid, gpu in listed.items():
            counted_mj = gpu.get(ENERGY_MJ)
            counted_j = None if counted_mj is None else counted_mj / 1000
            joules += self._totals[uuid].add(now_s, gpu[POWER_W], counted_j)
        used = [gpu[USED_PERCENT] / 100 for gpu in listed.values() if USED_PERCENT in gpu]
        return MeterSample(joules, sum(used) / len(used) if used else None)


POWER_W, ENERGY_MJ = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
USED_PERCENT = "DCGM_FI_DEV_GPU_UTIL"
MAX_FIGURE = 1e17
"""Above it DCGM means that a figure is unknown (DCGM_INT64_BLANK is 2^63 − 16)."""
SERIES = re.compile(r"(DCGM_FI_DEV_[A-Z_]+)\{([^}]*)\} (\S+)")


def open_redfish(
    url: str, credentials: Path, ca: Path | None, fingerprint: str | None
) -> tuple[RedfishMeter | None, str]:
    """Return the meter, or None and the reason.

    ``credentials`` holds USER:PASSWORD. The BMC's certificate is signed by one in ``ca``, has the
    SHA-256 ``fingerprint``, or is trusted by this machine. Plain HTTP is for loopback alone.
    """
    why_not = "the node is not measured"
    try:
        secret = credentials.read_bytes()[: MAX_KEY_BYTES + 1].strip()
        if not re.fullmatch(rb"[!-9;-~]+:[!-~]+", secret) or len(secret) > MAX_KEY_BYTES:
            return None, f"{why_not}: {credentials} does not hold one line USER:PASSWORD"
        headers = {"Authorization": f"Basic {base64.b64encode(secret).decode()}"}
        return RedfishMeter(url, headers, _secure(ca, fingerprint)), ""
    except OSError as error:
        return None, f"{why_not}: {error.filename or credentials}: {error.strerror or error}"
    except (DownloadError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, f"{why_not}: {_text(error)}"


def open_dcgm(url: str) -> tuple[DcgmMeter | None, str]:
    """Return the meter, or None and the reason."""
    try:
        return DcgmMeter(url), ""
    except (DownloadError, ValueError, KeyError) as error:
        return None, f"GPUs are not measured: {_text(error)}"


class _PinnedConnection(HTTPSConnection):
    """Sends nothing to a server whose certificate has another SHA-256 ``fingerprint``."""

    fingerprint = ""

    def connect(self) -> None:
        super().connect()
        found = hashlib.sha256(self.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if found != self.fingerprint:
            self.close()
            raise ssl.SSLError(f"the certificate's SHA-256 fingerprint is {found}")


def _secure(ca: Path | None, fingerprint: str | None) -> Connect:
    """Raise OSError or ValueError if the file or the fingerprint cannot be used."""
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    pin = (fingerprint or "").replace(":", "").lower()
    if fingerprint is not None:
        if not re.fullmatch("[0-9a-f]{64}", pin):
            raise ValueError("a fingerprint is the SHA-256 of a certificate, 64 hexadecimal digits")
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connect(scheme: str, host: str, port: int | None, connect_s: float) -> HTTPConnection:
        if scheme == "http":
            if host not in LOOPBACK:
                raise ValueError("credentials go over https:// only")
            return HTTPConnection(host, port, timeout=connect_s)
        if not pin:
            return HTTPSConnection(host, port, timeout=connect_s, context=context)
        pinned = _PinnedConnection(host, port, timeout=connect_s, context=context)
        pinned.fingerprint = pin
        return pinned

    return connect


def _power_w(found: Mapping[str, Any]) -> float | None:
    """Return the power of EnvironmentMetrics or Power; None where the node is off or has none."""
    said = [found.get("PowerWatts", {}).get("Reading")]
    said += [control.get("PowerConsumedWatts") for control in found.get("PowerControl", [])]
    watts = [number for each in said if (number := _number(each))]
    if len(watts) > 1:
        raise ValueError(f"it has {len(watts)} power readings, of which none is the whole node's")
    return watts[0] if watts else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _json_object(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("its answer is not a JSON object")
    return found


def _gpu_figures(body: bytes) -> dict[str, dict[str, float]]:
    """Return the figures of each GPU by its UUID. Raise ValueError for several machines' GPUs."""
    found: dict[str, dict[str, float]] = {}
    hosts: set[str] = set()
    for name, labels, text in SERIES.findall(body.decode("utf-8", "replace")):
        value, by = float(text), dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if 0 <= value < MAX_FIGURE:
            found.setdefault(by["UUID"], {})[name] = value
            hosts.add(by.get("Hostname", ""))
    if len(hosts) > 1:
        raise ValueError(f"it lists GPUs of {len(hosts)} machines")
    return {uuid: figures for uuid, figures in found.items() if POWER_W in figures}


def _text(error: Exception) -> str:
    """Return the reason on one line."""
    text = error.message if isinstance(error, DownloadError) else str(error)
    return " ".join((text or type(error).__name__).split())[:300]


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
