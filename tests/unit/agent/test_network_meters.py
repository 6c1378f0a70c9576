"""The whole node's meter and the DCGM exporter, against servers that speak their documented forms.

Forms: DMTF Redfish 2023.1 mockups (Chassis, Power 1.7, EnvironmentMetrics 1.3); the exposition of
dcgm-exporter 3.3.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from costopt.agent import network_meters
from costopt.agent.meters import Meter, MeterSample
from costopt.agent.network_meters import DcgmMeter, RedfishMeter, open_dcgm, open_redfish
from costopt.download import DownloadLimits

SECRET = "ops:b11c-p4ss:w0rd"
CHASSIS = "/redfish/v1/Chassis"


class Instrument:
    """A server of these paths. ``status`` replaces every answer, ``slow_s`` delays it."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.status = 200
        self.slow_s = 0.0
        self.credentials = ""
        self.seen: list[str] = []
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        self.seen.append(request.path)
        time.sleep(self.slow_s)
        known = "Basic " + base64.b64encode(self.credentials.encode()).decode()
        if self.credentials and request.headers.get("Authorization") != known:
            return 401, b"{}"
        page = self.pages.get(request.path)
        if self.status != 200 or page is None:
            return (self.status if self.status != 200 else 404), b"{}"
        return 200, page.encode() if isinstance(page, str) else json.dumps(page).encode()


@pytest.fixture
def instrument() -> Iterator[Instrument]:
    served = Instrument()
    with serve(served) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        yield served
        server.shutdown()


def serve(served: Instrument) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = served.answer(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class Bmc:
    """The pages of a BMC with one chassis: of the newer form with ``kwh`` or without, or older."""

    def __init__(self, served: Instrument, *, older: bool = False) -> None:
        self.served, self.older = served, older
        served.credentials = SECRET
        served.pages[CHASSIS] = {"Members": [{"@odata.id": f"{CHASSIS}/1U"}]}
        form = "Power" if older else "EnvironmentMetrics"
        served.pages[f"{CHASSIS}/1U"] = {
            "@odata.type": "#Chassis.v1_23_0.Chassis",
            form: {"@odata.id": f"{CHASSIS}/1U/{form}"},
        }
        self.path = f"{CHASSIS}/1U/{form}"
        self.read(5000.0)

    def read(self, watts: float | None, kwh: float | None = None) -> None:
        if self.older:
            self.served.pages[self.path] = {
                "@odata.type": "#Power.v1_7_1.Power",
                "PowerControl": [{"MemberId": "0", "PowerConsumedWatts": watts}],
            }
            return
        source = {"DataSourceUri": f"{CHASSIS}/1U/Sensors/TotalPower"}
        self.served.pages[self.path] = {
            "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
            "PowerWatts": {**source, "Reading": watts},
            **({} if kwh is None else {"EnergykWh": {**source, "Reading": kwh}}),
        }

    def open(self, folder: Path, **options: Any) -> tuple[RedfishMeter | None, str]:
        key = folder / "bmc"
        key.write_text(options.pop("secret", SECRET) + "\n")
        options = {"ca": None, "fingerprint": None, **options}
        return open_redfish(options.pop("url", self.served.url), key, **options)

    def meter(self, folder: Path) -> RedfishMeter:
        meter, why = self.open(folder)
        assert meter is not None, why
        return meter


def joules(meter: Meter, now_s: float) -> float:
    found = meter.sample(now_s)
    assert found is not None, meter.error
    return found.joules


@pytest.mark.parametrize("older", [False, True])
def test_power_of_either_form_is_integrated(
    older: bool, instrument: Instrument, tmp_path: Path
) -> None:
    bmc = Bmc(instrument, older=older)
    meter = bmc.meter(tmp_path)
    assert joules(meter, 0.0) == 0.0
    bmc.read(6000.0)
    assert joules(meter, 5.0) == pytest.approx(5500.0 * 5)
    assert instrument.seen[-1] == bmc.path


def test_a_coarse_counter_corrects_the_power_and_bridges_an_outage(
    instrument: Instrument, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A counter of steps of 0.1 kWh; the power reads 4 % too low."""
    bmc = Bmc(instrument)
    bmc.read(6912.0, 100.0)
    meter = bmc.meter(tmp_path)
    total_j, first_step_s = 0.0, 50
    for now_s in range(0, 1201, 5):
        bmc.read(6912.0, 100.0 + 0.1 * ((7200 * (now_s + 2) / 3.6e6) // 0.1))
        instrument.status = 503 if 400 < now_s < 600 else 200
        found = meter.sample(float(now_s))
        assert (found is None) == (instrument.status == 503)
        total_j += 0.0 if found is None else found.joules
    assert total_j == pytest.approx(7200 * 1200, rel=0.003), first_step_s
    said = capfd.readouterr().err
    assert said.count("answered 503") == said.count("answers again") == 1
    assert SECRET not in said


def test_a_gap_without_a_counter_ends_what_is_known(instrument: Instrument, tmp_path: Path) -> None:
    bmc = Bmc(instrument)
    meter = bmc.meter(tmp_path)
    joules(meter, 0.0)
    bmc.read(None)
    assert meter.sample(5.0) is None
    assert meter.error == ""
    bmc.read(5000.0)
    assert meter.sample(120.0) is None
    assert "no counter bridges 120 s" in meter.error


def test_a_bmc_that_stays_away_is_read_no_more(instrument: Instrument, tmp_path: Path) -> None:
    meter = Bmc(instrument).meter(tmp_path)
    joules(meter, 0.0)
    instrument.status = 500
    assert meter.sample(299.0) is None
    assert meter.error == ""
    assert meter.sample(301.0) is None
    assert "500" in meter.error


def test_a_slow_bmc_is_cut_off(
    instrument: Instrument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Bmc(instrument).meter(tmp_path)
    monkeypatch.setattr(meter._downloader, "_limits", DownloadLimits(1.0, 0.2, 0.3))
    instrument.slow_s = 2.0
    begun = time.monotonic()
    assert meter.sample(0.0) is None
    assert time.monotonic() - begun < 2.0


@pytest.mark.parametrize(("grown_kwh", "says"), [(0.01 / 1000, "units"), (10.0, "units")])
def test_a_counter_of_another_unit_is_reported(
    grown_kwh: float, says: str, instrument: Instrument, tmp_path: Path
) -> None:
    """7,200 W for 5 s are 0.01 kWh; the counter says a thousandth, or Wh for kWh."""
    bmc = Bmc(instrument)
    bmc.read(7200.0, 1.0)
    meter = bmc.meter(tmp_path)
    found: list[MeterSample | None] = []
    for step in range(3):
        bmc.read(7200.0, 1.0 + step * grown_kwh)
        found.append(meter.sample(5.0 * step))
    assert found[-1] is None
    assert says in meter.error


def test_a_counter_that_is_stuck_is_reported(instrument: Instrument, tmp_path: Path) -> None:
    bmc = Bmc(instrument)
    bmc.read(7200.0, 1.0)
    meter = bmc.meter(tmp_path)
    assert all(meter.sample(now_s) is not None for now_s in (0.0, 600.0, 1200.0))
    assert meter.sample(1800.0) is None
    assert "rests" in meter.error


def test_a_reset_counter_is_reported_and_the_power_counts(
    instrument: Instrument, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bmc = Bmc(instrument)
    meter = bmc.meter(tmp_path)
    total_j = 0.0
    for step, kwh in enumerate((5.00, 5.01, 5.02, 0.005, 0.015, 0.025)):
        bmc.read(7200.0, kwh)
        total_j += joules(meter, 5.0 * step)
    assert total_j == pytest.approx(7200 * 25)
    assert capfd.readouterr().err.count("reset") == 1


def test_what_cannot_be_read_at_the_start_is_said_without_the_password(
    instrument: Instrument, tmp_path: Path
) -> None:
    bmc = Bmc(instrument)
    instrument.pages[f"{CHASSIS}/1U/Many"] = {
        "PowerControl": [{"PowerConsumedWatts": 700}, {"PowerConsumedWatts": 200}]
    }
    instrument.pages[f"{CHASSIS}/two"] = {"Power": {"@odata.id": f"{CHASSIS}/1U/Many"}}
    instrument.pages[f"{CHASSIS}/none"] = {"Name": "a drawer"}
    instrument.pages[f"{CHASSIS}/text"] = "<html>"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"secret": "ops:wrong"}, "401"),
        ({"secret": "no colon"}, "USER:PASSWORD"),
        ({"url": f"{instrument.url}{CHASSIS}/two"}, "2 power readings"),
        ({"url": f"{instrument.url}{CHASSIS}/none"}, "no power reading"),
        ({"url": f"{instrument.url}{CHASSIS}/text"}, "not measured"),
        ({"url": "http://bmc.example"}, "https"),
        ({"fingerprint": "abc"}, "64 hexadecimal"),
        ({"ca": tmp_path / "missing.pem"}, "not measured"),
    ]
    for options, says in cases:
        meter, why = bmc.open(tmp_path, **options)
        assert meter is None
        assert says in why
        assert "p4ss" not in why
    instrument.pages[CHASSIS]["Members"].append({"@odata.id": f"{CHASSIS}/two"})
    assert "name one of them" in bmc.open(tmp_path)[1]
    assert "not measured" in open_redfish(bmc.served.url, tmp_path / "no", None, None)[1]


def test_a_bmc_is_trusted_by_its_fingerprint_or_by_a_ca(tmp_path: Path) -> None:
    served = Instrument()
    bmc = Bmc(served)
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=bmc", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serve(served) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        served.url = f"https://127.0.0.1:{server.server_port}"
        assert bmc.open(tmp_path)[0] is None
        assert bmc.open(tmp_path, fingerprint="0" * 64)[0] is None
        assert served.seen == [], "nothing was sent to a server that is not known"
        assert bmc.open(tmp_path, fingerprint=pin)[1] == ""
        assert bmc.open(tmp_path, ca=certificate)[1] == ""
        server.shutdown()


def exposition(*gpus: tuple[float, float], host: str = "node-7", **more: float) -> str:
    """Each GPU's watts and millijoules, as dcgm-exporter prints them."""
    lines = ["# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).",
             "# TYPE DCGM_FI_DEV_POWER_USAGE gauge"]  # fmt: skip
    for index, (watts, mj) in enumerate(gpus):
        labels = (
            f'gpu="{index}",UUID="GPU-{index}5f1",pci_bus_id="00000000:1{index}:00.0",'
            f'device="nvidia{index}",modelName="NVIDIA H100 80GB HBM3",Hostname="{host}"'
        )
        lines.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {watts:.6f}")
        lines.append(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {mj:.0f}")
        lines += [f"{name}{{{labels}}} {value:g}" for name, value in more.items()]
    return "\n".join(lines) + "\n"


def test_the_dcgm_exporter_replaces_nvml(instrument: Instrument) -> None:
    instrument.pages["/metrics"] = exposition((700.0, 1e9), (650.0, 2e9))
    meter, why = open_dcgm(f"{instrument.url}/metrics")
    assert meter is not None, why
    total_j = 0.0
    for step in range(4):
        grown_mj = step * 7e6
        page = exposition((700.0, 1e9 + grown_mj), (650.0, 2e9 + grown_mj), DCGM_FI_DEV_GPU_UTIL=90)
        instrument.pages["/metrics"] = page
        total_j += joules(meter, 10.0 * step)
    assert total_j == pytest.approx(7000 + 6500 + 2 * 14_000), "power until the first step"
    assert meter.gpus == 2
    found = meter.sample(31.0)
    assert found is not None
    assert found.utilization == pytest.approx(0.9)


def test_an_exporter_that_cannot_be_right_is_reported(instrument: Instrument) -> None:
    url = f"{instrument.url}/metrics"
    assert "404" in open_dcgm(url)[1]
    instrument.pages["/metrics"] = "# nothing\n"
    assert "lists no" in open_dcgm(url)[1]
    instrument.pages["/metrics"] = exposition((1, 1)) + exposition((1, 1), host="other")
    assert "2 machines" in open_dcgm(url)[1]
    instrument.pages["/metrics"] = exposition((700.0, 0.0), (700.0, 0.0))
    meter = DcgmMeter(url)
    for step in range(3):
        instrument.pages["/metrics"] = exposition(*[(700.0, 7.0 * step)] * 2)
        meter.sample(10.0 * step)
    assert "units differ" in meter.error
    instrument.pages["/metrics"] = exposition((700.0, 2**63 - 16), (700.0, 2**63 - 16))
    unknown = DcgmMeter(url)
    assert joules(unknown, 0.0) == 0.0
    assert joules(unknown, 10.0) == pytest.approx(14_000), "an unknown counter is no figure"
    instrument.pages["/metrics"] = exposition((700.0, 0.0))
    assert unknown.sample(20.0) is None, "a GPU is missing"


def test_the_limits_fit_the_interval() -> None:
    assert network_meters.LIMITS.total_s < network_meters.INTERVAL_S
