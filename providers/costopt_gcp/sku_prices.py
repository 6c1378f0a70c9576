"""What a whole machine costs, put together from the SKUs of its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import CapacityType
from costopt_gcp.clients import Clients
from costopt_gcp.machine_types import MachineTypeInfo, MachineTypes
from costopt_gcp.regions import Regions
from costopt_gcp.shape import MachineShape, family
from costopt_gcp.skus import PartPrices, SkuCatalog

MACHINES = {
    "a3-megagpu": "a3plus instance",
    "a3-ultragpu": "a3ultra instance",
    "n1-highcpu": "n1 predefined instance",
    "n1-highmem": "n1 predefined instance",
    "n1-standard": "n1 predefined instance",
}
"""How SKUs call machines that are not called by their series ("g2 instance"). These names and those
of GPUs are from others who read the list: Cyclenerd/google-cloud-pricing-cost-calculator
(build/mapping.csv @08440e7) and dstackai/gpuhunt (src/gpuhunt/providers/gcp.py), on GitHub."""
GPUS = {
    "nvidia-a100-80gb": ("nvidia tesla a100 80gb gpu",),
    "nvidia-b200": ("a4 nvidia b200 (1 gpu slice)",),
    "nvidia-h100-80gb": ("nvidia h100 80gb gpu",),
    "nvidia-h100-mega-80gb": (
        "nvidia h100 80gb mega gpu",
        "nvidia h100 mega 80gb gpu",
        "nvidia h100 80gb plus gpu",
    ),
    "nvidia-h200-141gb": ("h200 141gb gpu", "nvidia h200 141gb gpu"),
    "nvidia-l4": ("nvidia l4 gpu",),
    "nvidia-rtx-pro-6000": ("rtx 6000 96gb",),
    "nvidia-tesla-a100": ("nvidia tesla a100 gpu",),
    "nvidia-tesla-p100": ("nvidia tesla p100 gpu",),
    "nvidia-tesla-p4": ("nvidia tesla p4 gpu",),
    "nvidia-tesla-t4": ("nvidia tesla t4 gpu",),
    "nvidia-tesla-v100": ("nvidia tesla v100 gpu",),
}
"""How SKUs call GPUs; some are called differently from region to region."""
SLICED = frozenset({"nvidia-b200"})
"""GPUs whose price is that of their part of the whole machine: there are no SKUs of A4's vCPUs and
memory (github.com/dstackai/gpuhunt/pull/176)."""
LOCAL_SSD = ("ssd backed local storage",)
SSD_GIB = 375.0
MONTH_H = 730.0
"""cloud.google.com/compute/disks-image-pricing: a partition of Local SSD; hours of a month."""

Part = tuple[tuple[str, ...], float]
"""The names that a part may go by, and how much of it a machine has."""


class SkuPrices:
    """Prices of nodes by region; a machine with a part that has no price has none."""

    def __init__(self, clients: Clients, regions: Regions, types: MachineTypes) -> None:
        self._skus = SkuCatalog(clients)
        self._regions = regions
        self._types = types

    def node(
        self, region: str, instance_type: str, terms: CapacityType, now: datetime
    ) -> tuple[Estimate | None, str]:
        """The price of a node, and why it is not known ("" where it is)."""
        shape = MachineShape.parse(instance_type)
        try:
            facts = self._facts(region, shape.machine_type, now)
            prices, asked_at = self._skus.prices(now)
        except ProviderError as error:
            return None, error.message
        usd, missing = node_usd_per_hour(prices, region, shape, facts, terms)
        if usd is None:
            return None, f"Cloud Billing has no {terms.value} price of {missing} in {region}"
        return Estimate.exact(usd, Basis.LISTED, "Cloud Billing SKUs", asked_at), ""

    def _facts(self, region: str, machine_type: str, now: datetime) -> MachineTypeInfo:
        for zone in self._regions.facts(region, now).zones:
            facts = self._types.of(zone, now).types.get(machine_type)
            if facts is not None:
                return facts
        raise BadRequestError(f"{region} has no {machine_type}")


def node_usd_per_hour(
    prices: PartPrices,
    region: str,
    shape: MachineShape,
    facts: MachineTypeInfo,
    terms: CapacityType,
) -> tuple[float | None, str]:
    """Dollars per hour, else None and the part that has no price."""
    costs: list[float] = []
    for names, amount in parts(shape, facts):
        usd = next((u for n in names if (u := prices.get((n, terms, region))) is not None), None)
        if usd is None:
            return None, names[0]
        costs.append(usd * amount)
    return math.fsum(costs), ""


def parts(shape: MachineShape, facts: MachineTypeInfo) -> Iterator[Part]:
    """Everything that a machine is charged for by the hour; its other disks are charged apart."""
    if facts.accelerator in SLICED:
        yield GPUS[facts.accelerator], facts.accelerators
        return
    kind = shape.machine_type.rpartition("-")[0]
    machine = MACHINES.get(kind, f"{family(shape.machine_type)} instance")
    # On flex-start an "A3 Instance Core" is an "A3 Core".
    short = machine.removesuffix(" instance")
    yield (f"{machine} core", f"{short} core"), facts.vcpus
    yield (f"{machine} ram", f"{short} ram"), facts.memory_gib
    for name, count in (
        (facts.accelerator, facts.accelerators),
        (shape.accelerator, shape.accelerators),
    ):
        if name is not None:
            yield GPUS.get(name, (name,)), count
    if facts.ssd_partitions:
        yield LOCAL_SSD, facts.ssd_partitions * SSD_GIB / MONTH_H
