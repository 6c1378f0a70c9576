"""Machine types as Compute Engine describes them, zone by zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from costopt.provider.cache import TtlCache
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.shape import ATTACHED, MachineShape, last

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
    """The most of an accelerator that one machine may have, by its name."""

    def sells(self, name: str) -> bool:
        """Whether the zone has this type, with these attached GPUs."""
        shape = MachineShape.parse(name)
        if shape.machine_type not in self.types:
            return False
        if shape.accelerator is None:
            return True
        return self.attachable.get(shape.accelerator, 0) >= shape.accelerators

    def matching(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """The zone's types that match any of ``patterns``; all with GPUs of their own where none.

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
        """Raises ProviderError."""
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
