"""What an instance type's name asks of Compute Engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from costopt.domain.errors import BadRequestError

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
    """A machine type, and the GPUs that are attached to it where it has none of its own."""

    machine_type: str
    accelerator: str | None = None
    accelerators: int = 0

    @classmethod
    def parse(cls, name: str) -> MachineShape:
        """From "a2-highgpu-1g", or "n1-standard-8+1xT4" as the catalogue calls it.

        Raises BadRequestError.
        """
        attached = _ATTACHED.fullmatch(name)
        if attached is not None and attached["gpu"] in ATTACHED:
            return cls(attached["machine"], ATTACHED[attached["gpu"]], int(attached["count"]))
        if _PLAIN.fullmatch(name):
            return cls(name)
        raise BadRequestError(
            f"{name!r} is no machine type of Compute Engine",
            hint="one is named like a2-highgpu-1g, or n1-standard-8+1xT4 with attached GPUs: "
            + ", ".join(ATTACHED),
        )


def instance_type_of(properties: Any) -> str | None:
    """The name of what a reservation holds; None where it is no single machine type known here."""
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
