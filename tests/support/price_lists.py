"""Public price lists in their wire forms, a few rows each, and a server of them on loopback.

Figures are those of excerpts of the real lists where a comment does not say otherwise.
"""

from __future__ import annotations

import gzip
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

DSTACK = "/dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"
SKYPILOT = "/raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/aws/vms.csv"
CYCLENERD = (
    "/raw.githubusercontent.com/Cyclenerd/google-cloud-pricing-cost-calculator/master/pricing.yml"
)
SPOT_FEED = "/spot-price.s3.amazonaws.com/spot.js"
ADVISOR = "/spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
NAMES = ("dstack-aws", "dstack-gcp", "skypilot-aws", "cyclenerd-gcp", "aws-spot", "aws-advisor")

DSTACK_HEADER = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,"
    "gpu_vendor,flags,cpu_arch,provider_data"
)
GPUS = {"H100": (192, 2048.0, 8, 80.0), "T4": (4, 16.0, 1, 16.0), "A100": (96, 1152.0, 8, 40.0)}


def dstack_row(name: str, location: str, usd: object, gpu: str, spot: bool) -> str:
    """A row of dstack's CSV."""
    cpus, memory, count, gpu_memory = GPUS[gpu]
    return (
        f"{name},{location},{usd},{cpus},{memory},{count},{gpu},{gpu_memory},{spot},,nvidia,,x86,"
    )


# The form of gpuhunt v3; figures are those of the lists below, of other regions made up.
DSTACK_AWS = [
    dstack_row("p5.48xlarge", "us-east-1", 55.04, "H100", False),
    dstack_row("p5.48xlarge", "us-east-2", 55.04, "H100", False),
    dstack_row("p5.48xlarge", "us-west-2", 55.04, "H100", False),
    dstack_row("p5.48xlarge", "us-east-2", 11.2462, "H100", True),
    dstack_row("p4d.24xlarge", "us-east-1", 21.957642, "A100", False),
    dstack_row("p4d.24xlarge", "us-east-2", 21.95764, "A100", False),
    dstack_row("p4d.24xlarge", "us-east-2", 6.0374, "A100", True),
    dstack_row("g4dn.xlarge", "us-east-1", 0.526, "T4", False),
    dstack_row("g4dn.xlarge", "us-east-2", 0.526, "T4", False),
    dstack_row("g4dn.xlarge", "sa-east-1", 0.894, "T4", False),
    dstack_row("g4dn.xlarge", "us-east-1", 0.2104, "T4", True),
    dstack_row("g4dn.xlarge", "us-east-2", 0.1893, "T4", True),
    dstack_row("m5.large", "us-east-1", 0.096, "T4", False),
]
DSTACK_GCP = [
    dstack_row("a3-highgpu-8g", "us-central1-a", 43.07, "H100", False),
    dstack_row("a3-highgpu-8g", "us-central1-a", 26.83, "H100", True),
    dstack_row("a3-highgpu-8g", "us-central1-c", 26.83, "H100", True),
]
SKYPILOT_HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
    "AvailabilityZone,Arch"
)


def skypilot_row(name: str, price: object, spot: object, region: str, zone: str) -> str:
    """A row of SkyPilot's list of AWS; GpuInfo is a Python literal."""
    info = "\"{'Gpus': [{'Name': 'H100', 'Manufacturer': 'NVIDIA', 'Count': 8}]}\""
    return f"{name},H100,8.0,192.0,2048.0,{info},{price},{spot},{region},{zone},x86_64"


SKYPILOT_AWS = [
    skypilot_row("p5.48xlarge", 55.04, "55.040000", "us-east-1", "use1-az1"),
    skypilot_row("p5.48xlarge", 55.04, "11.246200", "us-east-2", "use2-az1"),
    skypilot_row("p5.48xlarge", 55.04, "11.987300", "us-east-2", "use2-az2"),
    skypilot_row("p5.48xlarge", 55.04, "", "us-west-2", "usw2-az2"),
    skypilot_row("p5.48xlarge", 55.04, "20.0", "us-east-1", "use1-atl2-az1"),
    skypilot_row("p4d.24xlarge", 21.957642, "2.465500", "us-east-1", "use1-az1"),
    skypilot_row("p4d.24xlarge", 21.957642, "8.191500", "us-east-1", "use1-az2"),
    skypilot_row("p4d.24xlarge", 21.95764, "6.037400", "us-east-2", "use2-az1"),
    skypilot_row("p4d.24xlarge", 21.95764, "21.853500", "us-east-2", "use2-az3"),
    skypilot_row("g4dn.xlarge", 0.526, "0.210400", "us-east-1", "use1-az1"),
]
PRICING_YML = """\
---
about:
  copyright: |2

    Copyright 2022-2024 Nils Knieling. All Rights Reserved.
  generated: Thu Aug 20 03:53:56 2026
  timestamp: {timestamp}
  url: https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator
compute:
  instance:
    a3-highgpu-8g:
      cost:
        us-central1:
          hour: 88.49
          hour_spot: 26.83
          month: 64597.7
        mars-north1:
          hour: 1.0
          hour_spot: 1.0
      cpu: 208
      ram: 1872
    a2-highgpu-1g:
      a100: 1
      cost:
        africa-south1:
          hour: 4.80478794
          hour_spot: 1.441435835
        us-central1:
          hour: 3.673385
          hour_spot: 1.293355
          month: 2681.57105
        us-east1:
          hour: 3.673385
          hour_spot: 1.293355
        europe-west4:
          hour: 3.747972
          hour_spot: 1.44587
      cpu: 12
      ram: 85
    e2-medium:
      cost: {{us-central1: {{hour: 0.03}}}}
"""


def spot_feed(prices: Mapping[str, Mapping[str, str]]) -> bytes:
    """spot.js of prices by region and size: text, a size twice, N/A* for Windows."""
    regions = [
        {
            "region": region,
            "footnotes": {"*": "notAvailableForCCorCGPU"},
            "instanceTypes": [
                {
                    "type": "gpuCurrentGen",
                    "sizes": [
                        {
                            "size": size,
                            "valueColumns": [
                                {"name": "linux", "prices": {"USD": usd}},
                                {"name": "mswin", "prices": {"USD": "N/A*"}},
                            ],
                        }
                        for size, usd in sizes.items()
                        for _ in range(2)
                    ],
                },
                {"type": "generalPreviousGen", "sizes": []},
            ],
        }
        for region, sizes in prices.items()
    ]
    config = {
        "rate": "perhr",
        "valueColumns": ["linux", "mswin"],
        "currencies": ["USD"],
        "regions": regions,
    }
    return f"callback({json.dumps({'vers': 0.01, 'config': config})});\n".encode()


SPOT = {
    "us-east": {"p5.48xlarge": "19.9678", "p4d.24xlarge": "8.9", "g4dn.xlarge": "0.2104"},
    "us-east-2": {"p5.48xlarge": "11.5", "p4d.24xlarge": "N/A*", "t3.nano": "9.0E-4"},
    "eu-ireland": {"g4dn.xlarge": "0.0"},
}
ADVICE = {
    "global_rate": "<10%",
    "ranges": [
        {"index": index, "label": label, "dots": index, "max": most}
        for index, (label, most) in enumerate(
            [("<5%", 5), ("5-10%", 11), ("10-15%", 16), ("15-20%", 22), (">20%", 100)]
        )
    ],
    "instance_types": {"p5.48xlarge": {"cores": 192, "ram_gb": 2048.0, "emr": False}},
    "spot_advisor": {
        "us-east-2": {
            "Linux": {"p5.48xlarge": {"s": 60, "r": 3}, "t3.nano": {"s": 70, "r": 0}},
            "Windows": {"p5.48xlarge": {"s": 10, "r": 0}},
        },
        "us-east-1": {"Linux": {"g4dn.xlarge": {"s": 0, "r": 4}}},
    },
}


@dataclass
class Answer:
    """What the server answers at a path; ``write`` writes to the connection itself."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    write: Callable[[BaseHTTPRequestHandler], None] | None = None


def csv_text(header: str, rows: list[str]) -> bytes:
    """The bytes of a CSV file."""
    return "\n".join([header, *rows, ""]).encode()


def zipped(name: str, body: bytes) -> bytes:
    """A zip file of one member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, body)
    return out.getvalue()


def gzipped(body: bytes, **headers: str) -> Answer:
    """A body that is compressed on its way."""
    return Answer(gzip.compress(body), headers={"Content-Encoding": "gzip", **headers})


class PriceListServer:
    """Serves every list as a mirror does; tests replace answers. ``asked`` are the paths."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.answers: dict[str, Answer] = {}
        now = datetime.now(UTC)
        self.version = f"{now:%Y%m%d}-4711"
        self.set_dstack("aws", DSTACK_AWS)
        self.set_dstack("gcp", DSTACK_GCP)
        body = csv_text(SKYPILOT_HEADER, SKYPILOT_AWS)
        self.answers[SKYPILOT] = gzipped(body, ETag='"sky-1"')
        self.answers[CYCLENERD] = Answer(
            PRICING_YML.format(timestamp=int(now.timestamp())).encode()
        )
        self.answers[SPOT_FEED] = Answer(
            spot_feed(SPOT), headers={"Last-Modified": format_datetime(now, usegmt=True)}
        )
        self.answers[ADVISOR] = Answer(json.dumps(ADVICE).encode(), headers={"ETag": '"a"'})

    def set_dstack(self, provider: str, rows: list[str], version: str | None = None) -> None:
        """Publish a version of a provider's list."""
        name = version or self.version
        self.answers[f"{DSTACK}/{provider}/version"] = Answer(f"{name}\n".encode())
        body = zipped(f"{provider}.csv", csv_text(DSTACK_HEADER, rows))
        self.answers[f"{DSTACK}/{provider}/{name}/catalog.zip"] = Answer(body)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        self.asked.append(request.path)
        found = self.answers.get(request.path, Answer(b"<html>no such key</html>", 404))
        if found.write is not None:
            found.write(request)
            return
        tag = found.headers.get("ETag")
        unchanged = tag is not None and request.headers.get("If-None-Match") == tag
        request.send_response(304 if unchanged else found.status)
        for name, value in found.headers.items():
            request.send_header(name, value)
        if not unchanged:
            request.send_header("Content-Length", str(len(found.body)))
        request.end_headers()
        if not unchanged:
            request.wfile.write(found.body)


@contextmanager
def serve_price_lists() -> Iterator[PriceListServer]:
    """A server of all lists on loopback."""
    served: list[PriceListServer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served[0].answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Write nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hangs up is what is tested."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        served.append(PriceListServer(f"http://127.0.0.1:{server.server_port}"))
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield served[0]
        finally:
            server.shutdown()
            thread.join()


def stall(request: BaseHTTPRequestHandler) -> None:
    """Send headers and a byte, and then nothing until the client is gone."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b"x")
    request.wfile.flush()
    request.connection.settimeout(30)
    request.connection.recv(1)


def drip(request: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, without end."""
    request.send_response(200)
    request.end_headers()
    for _ in range(3000):
        request.wfile.write(b"x")
        request.wfile.flush()
        time.sleep(0.01)
