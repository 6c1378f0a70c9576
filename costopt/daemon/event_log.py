"""The ledger's new events as lines of the log, each with the decision that it follows."""

from __future__ import annotations

import logging

from costopt.daemon.http.schemas import to_json
from costopt.daemon.service import DaemonService
from costopt.domain.events import (
    DecisionMade,
    Event,
    GuardTripped,
    JobFailed,
    LaunchFailed,
    NodeMeasured,
    ProgressReported,
    SignalStale,
)

MAX_BATCH = 1000
MAX_JOBS = 10_000
"""Of which the last decision is remembered: those that something happened to most recently."""
_QUIET = (ProgressReported, NodeMeasured)
_WARNINGS = (GuardTripped, JobFailed, LaunchFailed, SignalStale)

log = logging.getLogger("costopt.events")


class EventLogWriter:
    """Follows the ledger from event ``after`` on; one thread at a time."""

    def __init__(self, service: DaemonService, after: int = 0) -> None:
        self._service = service
        self._after = after
        self._decisions: dict[str, str] = {}

    def follow(self) -> None:
        """Write what is new. Raises LedgerError."""
        while events := self._service.events(None, self._after, MAX_BATCH):
            for recorded in events:
                self._write(recorded.seq, recorded.event)
                self._after = recorded.seq

    def _write(self, seq: int, event: Event) -> None:
        decision_id = self._followed(event)
        fields = to_json(event)
        kind = fields.pop("kind")
        fields.pop("alternatives", None)
        extra = {
            "decision_id": decision_id,
            "job": event.job,
            "event": kind,
            "seq": seq,
            "fields": fields,
        }
        log.log(_level(event), "%s: %s", event.job, kind, extra=extra)

    def _followed(self, event: Event) -> str | None:
        last = self._decisions.pop(event.job, None)
        decision_id = event.decision_id if isinstance(event, DecisionMade) else last
        if decision_id is not None:
            self._decisions[event.job] = decision_id
        if len(self._decisions) > MAX_JOBS:
            del self._decisions[next(iter(self._decisions))]
        return decision_id


def _level(event: Event) -> int:
    if isinstance(event, _WARNINGS):
        return logging.WARNING
    return logging.DEBUG if isinstance(event, _QUIET) else logging.INFO
