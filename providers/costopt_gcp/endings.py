"""How nodes ended or are about to, as the operations of their zones tell.

A preemption is the operation ``compute.instances.preempted``, which begins when the node hears of
it: 30 s before the end, or as long as the node was made with notice of
(cloud.google.com/compute/docs/instances/spot, "Preemption process"). What a user deletes is a
``delete``. A deleted instance is in no list any more, so nothing but these says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import RLock
from typing import Any

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import EndCause, Node
from costopt.domain.market import Interruption
from costopt.provider.cache import fan_out
from costopt_gcp.instance import time_of
from costopt_gcp.operations import Operations
from costopt_gcp.shape import last

PREEMPTED = "compute.instances.preempted"
DELETED = "delete"
INSERTED = "insert"
KINDS = (PREEMPTED, DELETED, INSERTED)
LOOK_BACK = timedelta(hours=3)
WITHDRAWN_AFTER = timedelta(minutes=10)
"""A node that lives this long after its strike is not being taken."""


@dataclass(frozen=True, slots=True)
class InstanceEnd:
    """When a node ended, and why."""

    at: datetime
    cause: EndCause
    message: str


class InstanceEndings:
    """Preemptions and deletions, asked for by zone. ``notice_s`` is from notice to strike."""

    def __init__(self, operations: Operations, notice_s: float) -> None:
        self._operations = operations
        self._notice = timedelta(seconds=notice_s)
        self._lock = RLock()
        self._preempted_at: dict[str, datetime] = {}
        self._deleted_at: dict[str, datetime] = {}
        self._began_at: dict[str, datetime] = {}
        self._refused: dict[str, InstanceEnd] = {}
        self.silent: Mapping[str, ProviderError] = {}
        """The zones that did not answer the last time, and what went wrong."""

    def look(self, zones: Iterable[str], now: datetime, since: datetime | None = None) -> None:
        """Take in what the zones tell of the last hours, and from ``since`` on.

        One that does not answer is in ``silent``.
        """
        begin = now - LOOK_BACK
        begin = begin if since is None else min(begin, since)
        answers = fan_out(zones, lambda zone: self._look(zone, begin))
        self.silent = {z: told for z, told in answers.items() if isinstance(told, ProviderError)}

    def in_vain(self, node_id: str) -> InstanceEnd | None:
        """How the wait of a node that never ran ended; None where nothing is told of it.

        Google deletes it, and the operation that was to make it has failed
        (docs.cloud.google.com/compute/docs/instances/instance-lifecycle, PENDING).
        """
        with self._lock:
            return self._refused.get(node_id)

    def of(self, node_id: str) -> InstanceEnd | None:
        """How a node that is not listed any more ended; None where nothing is told of it.

        Who was preempted first and deleted then was interrupted, and ended with the earlier of
        both.
        """
        with self._lock:
            preempted_at = self._preempted_at.get(node_id)
            deleted_at = self._deleted_at.get(node_id)
        if preempted_at is not None and (deleted_at is None or preempted_at <= deleted_at):
            interrupts_at = preempted_at + self._notice
            at = interrupts_at if deleted_at is None else min(interrupts_at, deleted_at)
            return InstanceEnd(at, EndCause.INTERRUPTED, "Instance was preempted.")
        if deleted_at is not None:
            return InstanceEnd(deleted_at, EndCause.RELEASED, "deleted")
        return None

    def began_at(self, node_id: str) -> datetime | None:
        """When the node was made, as far as the operations go back."""
        with self._lock:
            return self._began_at.get(node_id)

    def notice(self, node: Node, now: datetime) -> Interruption | None:
        """The announced end of a living node, or None where it has none."""
        with self._lock:
            noticed_at = self._preempted_at.get(node.node_id)
        if noticed_at is None or now > noticed_at + self._notice + WITHDRAWN_AFTER:
            return None
        return Interruption(node.node_id, node.pool, noticed_at, noticed_at + self._notice)

    def _look(self, zone: str, since: datetime) -> None:
        for operation in self._operations.newest(zone, KINDS, since):
            began_at, name = time_of(operation.insert_time), last(operation.target_link)
            if began_at is None:
                continue
            if operation.error.errors:
                self._note_refusal(name, operation)
                continue
            with self._lock:
                if operation.operation_type == PREEMPTED:
                    self._preempted_at.setdefault(name, began_at)
                elif operation.operation_type == INSERTED:
                    self._began_at.setdefault(name, began_at)
                else:
                    ended_at = time_of(operation.end_time)
                    self._deleted_at[name] = ended_at or began_at

    def _note_refusal(self, name: str, operation: Any) -> None:
        ended_at = time_of(operation.end_time)
        if operation.operation_type == INSERTED and ended_at is not None:
            message = "; ".join(each.message for each in operation.error.errors)
            with self._lock:
                self._refused[name] = InstanceEnd(ended_at, EndCause.NO_CAPACITY, message)
