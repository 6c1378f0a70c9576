"""Machine types as Compute Engine describes them by zone, and how instance types name them.

An instance type is a machine type, with attached GPUs if the machine has none of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from costopt.domain.errors import BadRequestError
from costopt.provider.cache import TtlCache
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking

DAY_S = 86400.0
PAGE = 500


@dataclass(frozen=True, slots=True)
class MachineTypeInfo:
    """``accelerator`` is the machine's own GPU ("nvidia-l4"), None without one.

    ``ssd_partitions`` of Local SSD come with the machine.
    """

    name: str
    vcpus: int
    memory_gib: float
    accelerator: str | None
    accelerators: int
    ssd_partitions: int = 0


@dataclass(frozen=True, slots=True)
class ZoneInfo:
    """What a zone has: machine types by name, and GPUs that can be attached to N1 machines."""

    types: Mapping[str, MachineTypeInfo]
    attachable: Mapping[str, int]
    """The maximum number of an accelerator that one machine may have, by its name."""

    def sells(self, name: str) -> bool:
        """Return whether the zone has this type, with these attached GPUs."""
        shape = MachineShape.parse(name)
        if shape.machine_type not in self.types:
            return False
        if shape.accelerator is None:
            return True
        return self.attachable.get(shape.accelerator, 0) >= shape.accelerators

    def matching(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Return the zone's types that match any pattern; without one, all with GPUs of their own.

        A type with attached GPUs is named in full.
        """
        if not patterns:
            return tuple(sorted(n for n, facts in self.types.items() if facts.accelerator))
        found = {
            name
            for pattern in patterns
            for name in ({pattern} if "+" in pattern else self.types)
            if fnmatchcase(name, pattern) and self.sells(name)
        }
        return tuple(sorted(found))


class MachineTypes:
    """machineTypes.list and acceleratorTypes.list, once a day for each zone."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[str, ZoneInfo] = TtlCache(DAY_S, 30 * DAY_S)

    def of(self, zone: str, now: datetime) -> ZoneInfo:
        """Return what the zone has. Raise ProviderError."""
        return self._kept.get(zone, now, lambda: self._ask(zone))

    def _ask(self, zone: str) -> ZoneInfo:
        types = [_read(item) for item in self._items("machine_types", "machineTypes", zone)]
        attachable = {
            item.name: item.maximum_cards_per_instance
            for item in self._items("accelerator_types", "acceleratorTypes", zone)
            if item.name in ATTACHED.values()
        }
        return ZoneInfo({facts.name: facts for facts in types}, attachable)

    def _items(self, collection: str, resource: str, zone: str) -> list[Any]:
        request = {"project": self._clients.project, "zone": zone, "max_results": PAGE}
        with asking(f"compute.{resource}.list", zone):
            client = self._clients.of(collection)
            return list(client.list(request=request, **self._clients.reading()))


def _read(item: Any) -> MachineTypeInfo:
    own = next(iter(item.accelerators), None)
    return MachineTypeInfo(
        name=item.name,
        vcpus=item.guest_cpus,
        memory_gib=item.memory_mb / 1024,
        accelerator=None if own is None else last(own.guest_accelerator_type),
        accelerators=0 if own is None else own.guest_accelerator_count,
        ssd_partitions=item.bundled_local_ssds.partition_count,
    )


ATTACHED = {
    "P100": "nvidia-tesla-p100",
    "P4": "nvidia-tesla-p4",
    "T4": "nvidia-tesla-t4",
    "V100": "nvidia-tesla-v100",
}
"""GPUs that are attached to N1 machines (cloud.google.com/compute/docs/gpus)."""
_ATTACHED = re.compile(r"(?P<machine>n1-[a-z0-9-]+)\+(?P<count>\d+)x(?P<gpu>[A-Z0-9]+)")
_PLAIN = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


@dataclass(frozen=True, slots=True)
class MachineShape:
    """A machine type, and the GPUs that are attached to it if it has none of its own."""

    machine_type: str
    accelerator: str | None = None
    accelerators: int = 0

    @classmethod
    def parse(cls, name: str) -> MachineShape:
        """Return the shape of "a2-highgpu-1g", or "n1-standard-8+1xT4" as the catalogue names it.

        Raise BadRequestError.
        """
        attached = _ATTACHED.fullmatch(name)
        if attached is not None and attached["gpu"] in ATTACHED:
            return cls(attached["machine"], ATTACHED[attached["gpu"]], int(attached["count"]))
        if _PLAIN.fullmatch(name):
            return cls(name)
        raise BadRequestError(
            f"{name!r} is not a machine type of Compute Engine",
            hint="one is named like a2-highgpu-1g, or n1-standard-8+1xT4 with attached GPUs: "
            + ", ".join(ATTACHED),
        )


def instance_type_of(properties: Any) -> str | None:
    """Return the instance type of a reservation; None if it is not a single known machine type."""
    machine_type, attached = properties.machine_type, list(properties.guest_accelerators)
    if not machine_type:
        return None
    if not machine_type.startswith("n1-") or not attached:
        return str(machine_type)
    models = {accelerator: model for model, accelerator in ATTACHED.items()}
    model = models.get(last(attached[0].accelerator_type))
    return None if model is None else f"{machine_type}+{attached[0].accelerator_count}x{model}"


def family(instance_type: str) -> str:
    """The series: "a3" of "a3-highgpu-8g"."""
    return instance_type.partition("-")[0]


def region_of(zone: str) -> str:
    """ "us-central1" of "us-central1-a"."""
    return zone.rpartition("-")[0]


def last(url: str) -> str:
    """The name at the end of a resource's URL."""
    return url.rpartition("/")[2]
