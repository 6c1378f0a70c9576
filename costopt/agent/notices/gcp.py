"""Preemption and maintenance notices of Google Cloud from the VM's metadata server.

``instance/preempted`` turns TRUE when the VM is about to be stopped, 30 s ahead by default and best
effort, or 120 s if the VM was created with that notice period. ``instance/maintenance-event`` turns
from NONE to TERMINATE_ON_HOST_MAINTENANCE or MIGRATE_ON_HOST_MAINTENANCE about 60 s ahead; a VM
with GPUs cannot migrate. With wait_for_change, the server answers both as soon as they change.
(Compute Engine documentation, "Spot VMs" and "View and query VM metadata".)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

from costopt.agent.notices.base import MetadataError, Notice, PollingNoticeSource, get_metadata

HOST_VARIABLE = "GCE_METADATA_HOST"
HOST = "metadata.google.internal"
ROOT = "/computeMetadata/v1/instance/"
HEADERS = {"Metadata-Flavor": "Google"}
PREEMPTION_S = 30.0
MAINTENANCE_S = 60.0
TERMINATE = "TERMINATE_ON_HOST_MAINTENANCE"
LONG_POLL_S = 30
TIMEOUT_SPARE_S = 5.0


class GcpNoticeSource(PollingNoticeSource):
    """Sends each query as one request that the server holds until the value changes.

    ``notice_s`` is the notice period before a preempted VM ends: 30 or 120.
    """

    def __init__(
        self,
        poll_s: float = 1.0,
        host: str | None = None,
        notice_s: float = PREEMPTION_S,
        long_poll_s: int = LONG_POLL_S,
    ) -> None:
        super().__init__(poll_s)
        self._host = host or os.environ.get(HOST_VARIABLE) or HOST
        self._notice_s = notice_s
        self._long_poll_s = long_poll_s
        self._etags: dict[str, str] = {}

    def queries(self) -> dict[str, Callable[[], None]]:
        """Return the queries for the preemption and the maintenance."""
        return {"preempted": self._ask_preempted, "maintenance": self._ask_maintenance}

    def _ask_preempted(self) -> None:
        if self._get("preempted").upper() == "TRUE":
            self._announce(_ending_in("terminate", self._notice_s))

    def _ask_maintenance(self) -> None:
        event = self._get("maintenance-event")
        if event == TERMINATE:
            self._announce(_ending_in("stop", MAINTENANCE_S))
        self._warn("maintenance", "" if event in ("", "NONE") else f"maintenance: {event}")

    def _get(self, name: str) -> str:
        """Return the value: at once the first time, then when it changes. Raise MetadataError."""
        query = ""
        if name in self._etags:
            query = (
                f"?wait_for_change=true&timeout_sec={self._long_poll_s}"
                f"&last_etag={self._etags[name]}"
            )
        response = get_metadata(
            self._host, ROOT + name + query, HEADERS, timeout_s=self._long_poll_s + TIMEOUT_SPARE_S
        )
        if response.status != 200:
            self._etags.pop(name, None)
            raise MetadataError(f"{self._host}{ROOT}{name} answered {response.status}")
        if "etag" in response.headers:
            self._etags[name] = response.headers["etag"]
        return response.text.strip()


def _ending_in(action: str, seconds: float) -> Notice:
    deadline_at = time.time() + seconds
    return Notice(action, datetime.fromtimestamp(deadline_at, UTC).isoformat(), deadline_at)
