"""A cloud in memory in place of your cloud's SDK: replace this file with calls of the SDK.

It sells one instance type, on demand without bound and on spot as far as ``spot_nodes`` says. When
less is left, it interrupts the newest instances, with a minute's notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.ports import Clock

INSTANCE_TYPE = "gpu-1"
USD_PER_HOUR = {True: 1.0, False: 3.0}
"""By whether it is spot."""
NOTICE = timedelta(seconds=60)
MAX_INSTANCES = 100


class CloudError(Exception):
    """What the SDK raises; ``code`` is the cloud's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as the cloud describes it."""

    instance_id: str
    zone: str
    spot: bool
    tags: Mapping[str, str]
    created_at: datetime
    ended_at: datetime | None = None
    interrupted: bool = False


class Cloud:
    """``spot_nodes`` by zone: from which instant on there is room for how many, ascending."""

    def __init__(self, clock: Clock, regions: tuple[str, ...]) -> None:
        self._clock = clock
        self._zones = {f"{region}{letter}": region for region in regions for letter in "ab"}
        self._instances: dict[str, Instance] = {}
        self.spot_nodes: dict[str, list[tuple[datetime, int]]] = {}

    def zones(self) -> Mapping[str, str]:
        """Return the region of each zone."""
        return self._zones

    def create(
        self, zone: str, instance_type: str, count: int, spot: bool, tags: Mapping[str, str]
    ) -> None:
        """Start all instances or none. Raises CloudError."""
        if zone not in self._zones or instance_type != INSTANCE_TYPE:
            raise CloudError("NotFound", f"no {instance_type} in zone {zone}")
        now, living = self._clock.now(), len(self._living(zone))
        if spot and living + count > self._room(zone, now):
            raise CloudError("SoldOut", f"fewer than {count} spot instances left in {zone}")
        for _ in range(count):
            instance_id = f"i-{len(self._instances):06d}"
            self._instances[instance_id] = Instance(instance_id, zone, spot, dict(tags), now)

    def instances(self, tags: Mapping[str, str]) -> tuple[Instance, ...]:
        """Return those with all of these tags, ended ones for two hours."""
        now = self._clock.now()
        self._interrupt(now)
        return tuple(
            each
            for each in self._instances.values()
            if tags.items() <= each.tags.items()
            and (each.ended_at is None or now - each.ended_at <= timedelta(hours=2))
        )

    def delete(self, instance_id: str) -> None:
        """Raise CloudError where it does not exist or has ended."""
        found = self._instances.get(instance_id)
        if found is None or found.ended_at is not None:
            raise CloudError("NotFound", f"no instance {instance_id}")
        self._instances[instance_id] = replace(found, ended_at=self._clock.now())

    def interruptions(self) -> Mapping[str, datetime]:
        """Return when each instance will be interrupted that has been given notice."""
        now = self._clock.now()
        self._interrupt(now)
        return {
            instance.instance_id: at
            for zone, steps in self.spot_nodes.items()
            for at, room in steps
            if now < at <= now + NOTICE
            for instance in self._living(zone)[room:]
        }

    def _room(self, zone: str, now: datetime) -> int:
        """For spot instances, of which a zone has none unless it says so."""
        steps = [room for at, room in self.spot_nodes.get(zone, ()) if at <= now]
        return steps[-1] if steps else 0

    def _living(self, zone: str) -> list[Instance]:
        return [i for i in self._instances.values() if i.zone == zone and i.spot and not i.ended_at]

    def _interrupt(self, now: datetime) -> None:
        for zone, steps in self.spot_nodes.items():
            for at, room in steps:
                if at > now:
                    continue
                older = [each for each in self._living(zone) if each.created_at < at]
                for each in older[room:]:
                    self._instances[each.instance_id] = replace(each, ended_at=at, interrupted=True)
