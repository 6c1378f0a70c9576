"""The events of a job as a daemon tells them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient
    from costopt.domain.events import Event

PAGE = 1000


def remote_events(client: DaemonClient, job: str) -> tuple[Event, ...]:
    """All of them, in order. Raises RefusedError, LostError, LedgerError for a newer daemon's."""
    from costopt.ledger.codec import SCHEMA_VERSION, decode

    events: list[Event] = []
    after = 0
    while page := client.get("jobs", job, "events", after=after, limit=PAGE)["events"]:
        events += [decode(json.dumps({"v": SCHEMA_VERSION, **each["event"]})) for each in page]
        after = page[-1]["seq"]
    return tuple(events)
