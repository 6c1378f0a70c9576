"""Operations: what a call has set going, and what a zone says has happened in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from costopt.domain.errors import ProviderUnavailableError
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking, from_operation
from costopt_gcp.instance import time_of

PAGE = 500


class Operations:
    """Operations of zones and regions, through clients of their own.

    The futures of the client library ask an endpoint of their own choosing how an operation goes,
    and keep the codes of its errors to themselves.
    """

    def __init__(self, clients: Clients, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clients = clients
        self._sleep = sleep

    def finished(self, operation: Any, place: str, permission: str, about: str) -> Any:
        """The operation once it is done; ``place`` is the zone or region that it is one of.

        Raises what it came to; ProviderUnavailableError where it goes on for too long.
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
        """Raises what an operation has come to, if it has failed."""
        errors = [(each.code, each.message) for each in operation.error.errors]
        if errors or operation.http_error_status_code >= 400:
            raise from_operation(errors, permission, about, operation.http_error_status_code)

    def newest(self, zone: str, kinds: tuple[str, ...], since: datetime) -> Iterator[Any]:
        """Operations of these types that began at or after ``since``, the newest first.

        Google keeps them for 14 days. Raises ProviderError.
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
        """Asked so that the answer comes when the operation is done, or after two minutes."""
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
