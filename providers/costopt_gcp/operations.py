"""Operations of zones and regions, and how nodes ended or are about to end, by them.

An operation is what a call has started, or what a zone reports to have happened in it. A preemption
is the operation ``compute.instances.preempted``, which begins when the node gets notice of it: 30 s
before the end, or as long as the node was made with notice of
(cloud.google.com/compute/docs/instances/spot, "Preemption process"). A deletion by a user is a
``delete``. No list holds a deleted instance, so only these operations report why it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import RLock
from typing import Any

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.fleet import EndCause, Node
from costopt.domain.market import Interruption
from costopt.provider.cache import fan_out, split_answers
from costopt.provider.tags import time_of
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking, from_operation
from costopt_gcp.machine_types import last

PAGE = 500


class Operations:
    """Operations of zones and regions, through clients of their own.

    The futures of the client library poll an operation at an endpoint of their own choice, and
    hide the codes of its errors.
    """

    def __init__(self, clients: Clients, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clients = clients
        self._sleep = sleep

    def finished(self, operation: Any, place: str, permission: str, about: str) -> Any:
        """Return the operation once it is done; ``place`` is its zone or region.

        Raise its error; ProviderUnavailableError if it takes too long.
        """
        timeouts = self._clients.timeouts
        give_up_at = time.monotonic() + timeouts.launch_s
        while _status(operation) != "DONE":
            if time.monotonic() >= give_up_at:
                raise ProviderUnavailableError(f"{about}: {permission} goes on for too long")
            operation = self._waited(operation, place, about)
            if _status(operation) != "DONE":
                self._sleep(timeouts.poll_s)
        self.check(operation, permission, about)
        return operation

    @staticmethod
    def check(operation: Any, permission: str, about: str) -> None:
        """Raise the error of an operation that has failed."""
        errors = [(each.code, each.message) for each in operation.error.errors]
        if errors or operation.http_error_status_code >= 400:
            raise from_operation(errors, permission, about, operation.http_error_status_code)

    def newest(self, zone: str, kinds: tuple[str, ...], since: datetime) -> Iterator[Any]:
        """Return operations of these types that began at or after ``since``, the newest first.

        Google stores them for 14 days. Raise ProviderError.
        """
        wanted = " OR ".join(f'(operationType = "{kind}")' for kind in kinds)
        request = {
            "project": self._clients.project,
            "zone": zone,
            "filter": wanted,
            "order_by": "creationTimestamp desc",
            "max_results": PAGE,
        }
        with asking("compute.zoneOperations.list", zone):
            client = self._clients.of("zone_operations")
            for operation in client.list(request=request, **self._clients.reading()):
                began_at = time_of(operation.insert_time)
                if began_at is not None and began_at < since:
                    return
                yield operation

    def _waited(self, operation: Any, place: str, about: str) -> Any:
        """Poll with a call that returns when the operation is done, or after two minutes."""
        kind = "region" if operation.region else "zone"
        with asking(f"compute.{kind}Operations.get", about):
            return self._clients.of(f"{kind}_operations").wait(
                project=self._clients.project,
                operation=operation.name,
                **{kind: place},
                **self._clients.reading(self._clients.timeouts.launch_s),
            )


def _status(operation: Any) -> str:
    status = operation.status
    return str(getattr(status, "name", status))


PREEMPTED = "compute.instances.preempted"
DELETED = "delete"
INSERTED = "insert"
KINDS = (PREEMPTED, DELETED, INSERTED)
LOOK_BACK = timedelta(hours=3)
WITHDRAWN_AFTER = timedelta(minutes=10)
"""A node alive this long after its announced interruption is not being interrupted."""


@dataclass(frozen=True, slots=True)
class InstanceEnd:
    """When a node ended, and why."""

    at: datetime
    cause: EndCause
    message: str


class InstanceEndings:
    """Preemptions and deletions by zone. ``notice_s`` is from notice to interruption."""

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
        """Read the zones' operations of the last hours, and from ``since`` on.

        A zone that does not answer is in ``silent``.
        """
        begin = now - LOOK_BACK
        begin = begin if since is None else min(begin, since)
        results = fan_out(zones, lambda zone: self._look(zone, begin))
        _, self.silent = split_answers(results)

    def in_vain(self, node_id: str) -> InstanceEnd | None:
        """Return how the wait of a node that never ran ended; None if no operation reports it.

        Google deletes the node, and the operation that was to create it has failed
        (docs.cloud.google.com/compute/docs/instances/instance-lifecycle, PENDING).
        """
        with self._lock:
            return self._refused.get(node_id)

    def of(self, node_id: str) -> InstanceEnd | None:
        """Return how a node that left the list ended; None if no operation reports it.

        A node that was preempted and then deleted was interrupted, and ended with the earlier of
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
        """Return when the node was created, as far as the operations go back."""
        with self._lock:
            return self._began_at.get(node_id)

    def notice(self, node: Node, now: datetime) -> Interruption | None:
        """Return the announced end of a live node, None without one."""
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
