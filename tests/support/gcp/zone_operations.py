"""Operations: they take time, and what becomes of them is reported when they are asked after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.support.gcp.filters import kept
from tests.support.gcp.responses import Call, Reply, missing

Errors = list[tuple[str, str]]
API = "https://www.googleapis.com/compute/v1"


@dataclass
class Operation:
    """One operation. It is done once ``looks`` looks were taken, or its time has passed.

    ``zone`` is that or, of what is regional, a region.
    """

    name: str
    kind: str
    zone: str
    target: str
    began_at: datetime
    finish: Callable[[], Errors]
    takes: timedelta | None = None
    looks: int = 0
    ended_at: datetime | None = None
    errors: Errors = field(default_factory=list)
    request_id: str = ""

    def look(self, now: datetime, *, asked: bool) -> None:
        """Come to an end where it is due."""
        if self.ended_at is not None:
            return
        if asked:
            self.looks -= 1
        timed = self.takes is not None and now >= self.began_at + self.takes
        if timed or (self.takes is None and self.looks < 0):
            self.ended_at = now if self.takes is None else self.began_at + self.takes
            self.errors = self.finish()

    def content(self) -> Mapping[str, Any]:
        """As the API shows it."""
        done = self.ended_at is not None
        kind = "zone" if self.zone.count("-") == 2 else "region"
        where = f"{API}/projects/p/{kind}s/{self.zone}"
        reported: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(abs(hash(self.name)) % 10**18),
            "name": self.name,
            kind: where,
            "operationType": self.kind,
            "targetLink": f"{where}/{self.target}",
            "status": "DONE" if done else "RUNNING",
            "user": "me@example.org",
            "progress": 100 if done else 0,
            "insertTime": self.began_at.isoformat(timespec="milliseconds"),
            "startTime": self.began_at.isoformat(timespec="milliseconds"),
            "selfLink": f"{where}/operations/{self.name}",
        }
        if self.ended_at is not None:
            reported["endTime"] = self.ended_at.isoformat(timespec="milliseconds")
        if self.errors:
            listed = [{"code": code, "message": message} for code, message in self.errors]
            reported |= {
                "error": {"errors": listed},
                "httpErrorStatusCode": 503,
                "httpErrorMessage": "SERVICE UNAVAILABLE",
            }
        return reported


class ZoneOperations:
    """All operations of all zones, in order."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.all: list[Operation] = []

    def begin(
        self,
        kind: str,
        zone: str,
        target: str,
        finish: Callable[[], Errors],
        *,
        takes: timedelta | None = None,
        looks: int = 0,
        request_id: str = "",
    ) -> Operation:
        """Set one going."""
        name = f"operation-{len(self.all)}"
        operation = Operation(
            name, kind, zone, target, self._now(), finish, takes, looks, request_id=request_id
        )
        self.all.append(operation)
        return operation

    def of_request(self, request_id: str) -> Operation | None:
        """What a request id has set going before."""
        found = (each for each in self.all if request_id and each.request_id == request_id)
        return next(found, None)

    def settle(self) -> None:
        """Let those that take time come to their end."""
        for operation in list(self.all):
            operation.look(self._now(), asked=False)

    def look(self, call: Call) -> Reply:
        """zoneOperations.get, .wait and regionOperations.wait."""
        for operation in self.all:
            if operation.name == call.names["operation"]:
                operation.look(self._now(), asked=True)
                return Reply(operation.content())
        raise missing("operations", call.names["operation"])

    def listed(self, call: Call) -> list[Mapping[str, Any]]:
        """zoneOperations.list: the newest first where that is asked for."""
        items = [each.content() for each in self.all if each.zone == call.names["zone"]]
        if call.query.get("orderBy") == "creationTimestamp desc":
            items.reverse()
        return kept(items, call.query.get("filter", ""))

    def reset(self) -> None:
        """As new."""
        self.all.clear()
