"""Placement policies of regions, which instances in use hold on to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.support.gcp.responses import Call, RefusedError, Reply, missing
from tests.support.gcp.zone_operations import Errors, ZoneOperations

Used = Callable[[], set[str]]


class PlacementPolicies:
    """By region and name; ``used`` says which of them instances have."""

    def __init__(self, now: Callable[[], datetime], operations: ZoneOperations, used: Used) -> None:
        self._now = now
        self._operations = operations
        self._used = used
        self.all: dict[tuple[str, str], Mapping[str, Any]] = {}

    def reset(self) -> None:
        """There are none."""
        self.all.clear()

    def insert(self, call: Call) -> Reply:
        """resourcePolicies.insert."""
        key = call.names["region"], call.content["name"]
        if key in self.all:
            raise RefusedError(409, "alreadyExists", f"The resource '{key[1]}' already exists")

        def make() -> Errors:
            created = self._now().isoformat(timespec="milliseconds")
            self.all[key] = {**call.content, "creationTimestamp": created}
            return []

        operation = self._operations.begin("insert", key[0], f"resourcePolicies/{key[1]}", make)
        return Reply(operation.content())

    def delete(self, call: Call) -> Reply:
        """resourcePolicies.delete."""
        key = call.names["region"], call.names["policy"]
        if key not in self.all:
            raise missing("resourcePolicies", key[1])
        if key[1] in self._used():
            said = f"The resource_policy resource '{key[1]}' is already being used"
            raise RefusedError(400, "resourceInUseByAnotherResource", said)
        del self.all[key]
        return Reply({"name": "deleting", "status": "RUNNING"})

    def scopes(self, call: Call) -> Mapping[str, Any]:
        """resourcePolicies.aggregatedList."""
        reported: dict[str, Any] = {}
        for (region, _), policy in self.all.items():
            reported.setdefault(f"regions/{region}", {"resourcePolicies": []})
            reported[f"regions/{region}"]["resourcePolicies"].append(policy)
        return reported
