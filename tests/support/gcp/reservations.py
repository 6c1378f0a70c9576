"""Reservations, and future ones that become reservations when they begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.support.gcp.responses import Call
from tests.support.gcp.zone_operations import API


class Reserved:
    """By zone. ``used`` counts the instances that name a reservation."""

    def __init__(self, used: Callable[[str], int]) -> None:
        self._used = used
        self._held: list[dict[str, Any]] = []
        self._future: dict[str, dict[str, Any]] = {}

    def reset(self) -> None:
        """There are none."""
        self._held.clear()
        self._future.clear()

    def hold(
        self, zone: str, name: str, machine_type: str, nodes: int, **more: object
    ) -> dict[str, Any]:
        """A reservation that must be named."""
        held: dict[str, Any] = {
            "name": name,
            "zone": f"{API}/projects/p/zones/{zone}",
            "status": "READY",
            "specificReservationRequired": True,
            "specificReservation": {
                "count": str(nodes),
                "instanceProperties": {"machineType": machine_type},
            },
            **more,
        }
        self._held.append(held)
        return held

    def book(
        self,
        zone: str,
        machine_type: str,
        nodes: int,
        from_at: datetime,
        until_at: datetime,
        name: str = "booked",
    ) -> dict[str, Any]:
        """A future reservation in calendar mode, approved."""
        self._future[name] = {
            "name": name,
            "zone": f"{API}/projects/p/zones/{zone}",
            "reservationMode": "CALENDAR",
            "specificSkuProperties": {
                "totalCount": str(nodes),
                "instanceProperties": {"machineType": machine_type},
            },
            "timeWindow": {"startTime": from_at.isoformat(), "endTime": until_at.isoformat()},
            "status": {"procurementStatus": "APPROVED"},
        }
        return self._future[name]

    def begin(self, zone: str, machine_type: str, nodes: int, name: str = "booked") -> None:
        """What was booked is there."""
        self.hold(zone, f"{name}-1", machine_type, nodes)
        self._future[name]["status"] = {
            "procurementStatus": "FULFILLED",
            "autoCreatedReservations": [f"{API}/projects/p/zones/{zone}/reservations/{name}-1"],
        }

    def free(self, name: str) -> int:
        """How many more instances may name it."""
        counts = [h["specificReservation"]["count"] for h in self._held if h["name"] == name]
        return sum(map(int, counts)) - self._used(name)

    def scopes(self, call: Call) -> Mapping[str, Any]:
        """reservations.aggregatedList."""
        reported: dict[str, Any] = {}
        for held in self._held:
            used = self._used(held["name"])
            specific = {**held["specificReservation"], "inUseCount": str(used)}
            found = reported.setdefault(_scope(held), {"reservations": []})
            found["reservations"].append({**held, "specificReservation": specific})
        return reported

    def future_scopes(self, call: Call) -> Mapping[str, Any]:
        """futureReservations.aggregatedList."""
        reported: dict[str, Any] = {}
        for item in self._future.values():
            reported.setdefault(_scope(item), {"futureReservations": []})
            reported[_scope(item)]["futureReservations"].append(item)
        return reported


def _scope(item: Mapping[str, Any]) -> str:
    return f"zones/{item['zone'].rpartition('/')[2]}"
