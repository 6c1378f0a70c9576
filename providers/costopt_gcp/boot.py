"""Compute Engine's part of what runs as start-up script at every boot of a node.

A node that was switched off costs no more than its disk, which ``costopt reconcile`` removes. This
file is sent to nodes as text, behind ``costopt.provider.boot`` and under the same rules: the
standard library alone, and Python 3.8.
"""

from __future__ import annotations

import json
import os
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from costopt.provider.boot import RETRY_DELAY_S, BootError, get_with_retry

if TYPE_CHECKING:
    from costopt.provider.boot import Config

METADATA = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
DRIVER_S = float(os.environ.get("COSTOPT_DRIVER_S", "600"))


class GcePlatform:
    """The Cloud of a Compute Engine node."""

    fast_disk = Path("/mnt/disks/local-ssd")
    boot_log = "/var/log/syslog"

    def __init__(self, config: Config) -> None:
        self.store = config["store"]
        self.notice_s = config["notice_s"]
        self.stop_s = max(20, self.notice_s - 10)

    def node_id(self) -> str:
        """The instance's name."""
        return metadata("name")

    def object_url(self, method: str, key: str, body: bytes = b"") -> urllib.request.Request:
        """A request for an object of the job's store, with the node's own access token.

        https://cloud.google.com/storage/docs/xml-api/reference-methods
        """
        store = self.store
        token = json.loads(metadata("service-accounts/default/token"))["access_token"]
        parts = [store["bucket"], store["prefix"], key]
        path = "/" + urllib.parse.quote("/".join(part for part in parts if part))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        data = body if method == "PUT" else None
        return urllib.request.Request(store["endpoint"] + path, data, headers, method=method)

    def agent_options(self) -> list[str]:
        """Notices come from the metadata server; a trainer's process runs on each GPU."""
        host = metadata("network-interfaces/0/ip")
        notices = f"gcp:{self.notice_s}"
        options = ["--notices", notices, "--secrets", "gcp", "--host", host]
        return [*options, "--processes", str(gpus() or 1)]

    def variables(self) -> list[str]:
        """None: the metadata server tells all."""
        return []


def metadata(path: str) -> str:
    """What the instance's metadata server says."""
    url = f"http://{METADATA}/computeMetadata/v1/instance/{path}"
    headers = {"Metadata-Flavor": "Google"}
    return get_with_retry(lambda: urllib.request.Request(url, headers=headers)).decode()


def gpus() -> int:
    """How many GPUs there are, once the image has installed their driver on its first boot.

    A machine without GPUs shows none on its PCI bus, and nothing is waited for.
    """
    wanted = sum(1 for path in Path("/sys/bus/pci/devices").glob("*") if is_gpu(path))
    give_up_at = time.monotonic() + DRIVER_S
    found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    while found < wanted and time.monotonic() < give_up_at:
        time.sleep(RETRY_DELAY_S)
        found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if found < wanted:
        raise BootError(f"the driver shows {found} of {wanted} GPUs after {DRIVER_S:.0f} s")
    return found


def is_gpu(device: Path) -> bool:
    """Whether a PCI device is a GPU of NVIDIA: vendor 0x10de, class 0x0302 or 0x0300."""
    try:
        vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
    except OSError:
        return False
    return vendor.strip() == "0x10de" and kind.strip()[:6] in ("0x0300", "0x0302")
