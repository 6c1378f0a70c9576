"""What disks and kept checkpoints cost: list prices of a region, and the dollars that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

HOURS_PER_MONTH = 730
"""As providers turn prices per month into prices per hour."""

ROOT_GIB = 200.0
"""The size of a node's root volume, unless its provider's options name another."""

KEPT_CHECKPOINTS = 3
"""How many of the newest checkpoints trainers keep by default."""

PART_GIB = 64 / 1024
"""What one request stores of a checkpoint."""

STORE_GBPS = 100.0
"""What one node exchanges with an object store at most, in gigabits per second.

https://repost.aws/knowledge-center/s3-maximum-transfer-speed-ec2 (100 Gbit/s for the largest
instances); faster networks, such as EFA, connect nodes with each other.
"""

COPY_GBPS = 160.0
"""What one GPU copies to its node's memory, in gigabits per second: an assumption, 20 GB/s."""

REFORM_S = 30.0
"""For how long the other shard groups of a gang stop when one is lost: an assumption."""

COMMIT_S = 2.0
"""What a save or a restore takes besides the bytes, for indexes and manifest: an assumption."""

ZONE_USD_PER_GIB = {"aws": 0.02, "gcp": 0.01}
"""List prices of a GiB sent to another zone of its region, by provider.

AWS charges $0.01 where it leaves and $0.01 where it arrives
(https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer_within_the_same_AWS_Region), Google
Cloud where it leaves (https://cloud.google.com/vpc/pricing).
"""

PRICED_DISK = "pd-balanced"
"""The type of disk that the recorded prices of Google Cloud are of."""

HYPERDISK_FAMILIES = frozenset({"a4", "a4x"})
"""GPU machines of Google Cloud without pd-balanced disks; hyperdisks have no recorded price."""


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """List prices of one region, None where unknown.

    Dollars per GiB and month of root volumes and of an object store, and per 1,000 puts into it.
    ``root_gib`` is the size of a node's root volume.
    """

    volume_usd_per_gib_month: float | None
    store_usd_per_gib_month: float | None
    usd_per_1000_puts: float | None
    source: str
    root_gib: float = ROOT_GIB

    def volume_usd_per_hour(self, instance_type: str) -> float | None:
        """Return dollars per hour of a node's root volume, None where unknown."""
        family = instance_type.partition("-")[0]
        if self.volume_usd_per_gib_month is None or family in HYPERDISK_FAMILIES:
            return None
        return self.root_gib * self.volume_usd_per_gib_month / HOURS_PER_MONTH

    def save_usd(self, gib: float) -> float | None:
        """Return dollars of the requests of one save, None where unknown."""
        if self.usd_per_1000_puts is None:
            return None
        return math.ceil(gib / PART_GIB) * self.usd_per_1000_puts / 1000

    def kept_usd_per_hour(self, gib: float) -> float | None:
        """Return dollars per hour of keeping ``gib`` in the store, None where unknown."""
        if self.store_usd_per_gib_month is None:
            return None
        return gib * self.store_usd_per_gib_month / HOURS_PER_MONTH
