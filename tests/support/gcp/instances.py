"""Instances: made in bulk by operations that take time, and gone once they are deleted.

Those on flex-start are made one by one and wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.support.gcp.filters import kept
from tests.support.gcp.responses import Call, RefusedError, Reply, missing
from tests.support.gcp.zone_operations import API, Errors, ZoneOperations

STOCK_OUT = "ZONE_RESOURCE_POOL_EXHAUSTED"
UNLIMITED = 10_000


class Instances:
    """Those of all zones. ``room`` limits how many spot ones of a type a zone has."""

    def __init__(self, now: Callable[[], datetime], operations: ZoneOperations) -> None:
        self._now = now
        self._operations = operations
        self.all: dict[tuple[str, str], dict[str, Any]] = {}
        self.reserved_room: Callable[[str], int] = lambda name: 0
        self.has_policy: Callable[[str, str], bool] = lambda region, name: False
        self.reset()

    def reset(self) -> None:
        """As new."""
        self.all.clear()
        self.rooms: dict[tuple[str, str], int] = {}
        self.zones: frozenset[str] = frozenset()
        self.operation_errors: Errors = []
        self.looks = 2
        self.takes = timedelta(0)
        self.unreachable: set[str] = set()
        self.compact = True
        self.comes_after: timedelta | None = None
        self.on_start: Callable[[str], None] = lambda name: None
        self.on_end: Callable[[str], None] = lambda name: None

    def room(self, zone: str, machine_type: str, nodes: int) -> None:
        """So many spot instances of the type the zone has for us, and no more."""
        self.rooms[zone, machine_type] = nodes

    def bulk_insert(self, call: Call) -> Reply:
        """instances.bulkInsert: all or none; the same request id gives the same operation."""
        zone = call.names["zone"]
        if zone not in self.zones:
            raise missing("zones", zone)
        request_id = call.query.get("requestId", "")
        before = self._operations.of_request(request_id)
        if before is not None:
            return Reply(before.content())
        asked = dict(call.content)
        names = list(asked["perInstanceProperties"])
        taken = [name for name in names if (zone, name) in self.all]
        if taken:
            raise RefusedError(409, "alreadyExists", f"The resource '{taken[0]}' already exists")
        operation = self._operations.begin(
            "bulkInsert",
            zone,
            "instances",
            lambda: self._make(zone, asked, names),
            looks=self.looks,
            request_id=request_id,
        )
        return Reply(operation.content())

    def insert(self, call: Call) -> Reply:
        """instances.insert on flex-start: PENDING until capacity comes, by ``comes_after``.

        Where it does not come while the request is valid, the operation fails and the instance is
        gone, as the instance lifecycle says of PENDING.
        """
        zone, asked = call.names["zone"], dict(call.content)
        request_id = call.query.get("requestId", "")
        before = self._operations.of_request(request_id)
        if before is not None:
            return Reply(before.content())
        name, model = asked["name"], asked["scheduling"]["provisioningModel"]
        if (zone, name) in self.all:
            raise RefusedError(409, "alreadyExists", f"The resource '{name}' already exists")
        if model != "FLEX_START" or "maxRunDuration" not in asked["scheduling"]:
            raise RefusedError(400, "invalid", "maxRunDuration is required for FLEX_START")
        valid = timedelta(seconds=int(asked["params"]["requestValidForDuration"]["seconds"]))
        comes = self.comes_after is not None and self.comes_after <= valid
        self._place(zone, name, asked, "PENDING")
        operation = self._operations.begin(
            "insert",
            zone,
            f"instances/{name}",
            lambda: self._waited(zone, name, comes=comes),
            takes=self.comes_after if comes else valid,
            request_id=request_id,
        )
        return Reply(operation.content())

    def delete(self, call: Call) -> Reply:
        """instances.delete: the instance stops, then is gone."""
        zone, name = call.names["zone"], call.names["instance"]
        if (zone, name) not in self.all:
            raise missing(f"zones/{zone}/instances", name)
        self.all[zone, name]["status"] = "STOPPING"
        operation = self._operations.begin(
            "delete", zone, f"instances/{name}", lambda: self._gone(zone, name), takes=self.takes
        )
        return Reply(operation.content())

    def listed(self, call: Call) -> list[Mapping[str, Any]]:
        """instances.list of one zone."""
        return kept(self._of(call.names["zone"]), call.query.get("filter", ""))

    def scopes(self, call: Call) -> Mapping[str, Any]:
        """instances.aggregatedList: by zone, those without any with a warning."""
        reported: dict[str, Any] = {}
        for zone in sorted(self.zones):
            found = kept(self._of(zone), call.query.get("filter", ""))
            if zone in self.unreachable:
                reported[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": "down"}}
            elif found:
                reported[f"zones/{zone}"] = {"instances": found}
            else:
                empty = {"code": "NO_RESULTS_ON_PAGE", "message": "none"}
                reported[f"zones/{zone}"] = {"warning": empty}
        return reported

    def preempt(self, name: str, notice: timedelta) -> datetime:
        """Take an instance away: it hears of it now and is deleted later. When that is."""
        zone = next(z for z, n in self.all if n == name)
        self.all[zone, name]["status"] = "STOPPING"
        self._operations.begin(
            "compute.instances.preempted",
            zone,
            f"instances/{name}",
            lambda: self._gone(zone, name),
            takes=notice,
        )
        return self._now() + notice

    def alive(self) -> list[str]:
        """The names of the instances that cost money, in order."""
        self._operations.settle()
        return sorted(n for (_, n), item in self.all.items() if item["status"] != "TERMINATED")

    def named(self, name: str) -> dict[str, Any]:
        """One instance, as the API shows it."""
        return next(item for (_, n), item in self.all.items() if n == name)

    def _of(self, zone: str) -> list[Mapping[str, Any]]:
        return [item for (where, _), item in self.all.items() if where == zone]

    def _make(self, zone: str, asked: Mapping[str, Any], names: list[str]) -> Errors:
        if self.operation_errors:
            return self.operation_errors
        if any((zone, name) in self.all for name in names):
            return [("RESOURCE_ALREADY_EXISTS", f"The resource '{names[0]}' already exists")]
        properties = asked["instanceProperties"]
        refused = self._no_room(zone, properties, len(names)) or self._no_place(zone, properties)
        if refused:
            return refused
        for name in names:
            self._start(zone, name, properties)
        return []

    def _no_room(self, zone: str, properties: Mapping[str, Any], nodes: int) -> Errors:
        kind, model = properties["machineType"], properties["scheduling"]["provisioningModel"]
        if model == "SPOT":
            used = [i for i in self._of(zone) if i["machineType"].endswith(f"/{kind}")]
            if len(used) + nodes > self.rooms.get((zone, kind), UNLIMITED):
                said = f"The zone '{zone}' does not have enough resources available."
                least = f"Requested minimum count of {nodes} VMs could not be created."
                return [("VM_MIN_COUNT_NOT_REACHED", least), (STOCK_OUT, said)]
        for name in properties.get("reservationAffinity", {}).get("values", ()):
            if nodes > self.reserved_room(name):
                return [(STOCK_OUT, f"The reservation '{name}' has not enough left.")]
        return []

    def _no_place(self, zone: str, properties: Mapping[str, Any]) -> Errors:
        for policy in properties.get("resourcePolicies", ()):
            if not self.has_policy(zone.rpartition("-")[0], policy):
                return [("RESOURCE_NOT_FOUND", f"The resource policy '{policy}' was not found")]
            if not self.compact:
                return [(STOCK_OUT, f"The zone '{zone}' cannot place them compactly.")]
        return []

    def naming(self, reservation: str) -> int:
        """How many instances use this reservation."""
        affinities = (i["asked"].get("reservationAffinity", {}) for i in self.all.values())
        return sum(reservation in affinity.get("values", ()) for affinity in affinities)

    def placement_policies(self) -> set[str]:
        """Those that instances have."""
        return {
            policy
            for item in self.all.values()
            for policy in item["asked"].get("resourcePolicies", ())
        }

    def _waited(self, zone: str, name: str, *, comes: bool) -> Errors:
        item = self.all.get((zone, name))
        if item is None or item["status"] != "PENDING":
            return [("RESOURCE_NOT_FOUND", f"The instance '{name}' was deleted while it waited.")]
        if not comes:
            del self.all[zone, name]
            return [(STOCK_OUT, f"The zone '{zone}' had no capacity while the request was valid.")]
        item["status"] = "RUNNING"
        item["lastStartTimestamp"] = self._now().isoformat(timespec="milliseconds")
        self.on_start(name)
        return []

    def _start(self, zone: str, name: str, properties: Mapping[str, Any]) -> None:
        self._place(zone, name, properties, "RUNNING")
        self._operations.begin("insert", zone, f"instances/{name}", list, takes=timedelta(0))
        self.on_start(name)

    def _place(self, zone: str, name: str, properties: Mapping[str, Any], status: str) -> None:
        where = f"{API}/projects/p/zones/{zone}"
        self.all[zone, name] = {
            "kind": "compute#instance",
            "name": name,
            "id": str(len(self.all) + 1),
            "zone": where,
            "status": status,
            "machineType": f"{where}/machineTypes/{properties['machineType'].rpartition('/')[2]}",
            "creationTimestamp": self._now().isoformat(timespec="milliseconds"),
            "labels": properties.get("labels", {}),
            "metadata": properties.get("metadata", {}),
            "scheduling": properties.get("scheduling", {}),
            "asked": properties,
        }

    def _gone(self, zone: str, name: str) -> Errors:
        if self.all.pop((zone, name), None) is not None:
            self.on_end(name)
        return []
