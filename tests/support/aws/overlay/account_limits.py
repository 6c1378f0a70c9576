"""Service quotas and Capacity Blocks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply
from tests.support.aws.overlay.spot_market import NAMESPACE

QUOTAS = (
    ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 640.0),
    ("L-3819A6DF", "All G and VT Spot Instance Requests", 96.0),
    ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", 0.0),
    ("L-C4BD4855", "All P5 Spot Instance Requests", 192.0),
    ("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 1152.0),
    ("L-DB2E81BA", "Running On-Demand G and VT instances", 64.0),
    ("L-417A185B", "Running On-Demand P instances", 384.0),
    ("L-0263D0A3", "EC2-VPC Elastic IPs", 5.0),
)


class AccountLimits:
    """The quotas of a small account, and no block."""

    def __init__(self) -> None:
        self.quotas = {code: (name, value) for code, name, value in QUOTAS}
        self.page = 3
        self._blocks: list[str] = []

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """ListServiceQuotas and the two calls on Capacity Blocks."""
        return {
            ("servicequotas", "ListServiceQuotas"): self.list_service_quotas,
            ("ec2", "DescribeCapacityReservations"): self.describe_capacity_reservations,
        }

    def reset(self) -> None:
        """As it was."""
        self.__init__()  # type: ignore[misc]

    def book(
        self,
        zone: str,
        instance_type: str,
        nodes: int,
        begins_at: datetime,
        ends_at: datetime,
        block_id: str = "cr-0b10c",
        *,
        used: int = 0,
        state: str = "active",
    ) -> None:
        """The account has this block, of which ``used`` nodes run."""
        self._blocks.append(
            f"<item><capacityReservationId>{block_id}</capacityReservationId>"
            f"<availabilityZone>{zone}</availabilityZone>"
            f"<instanceType>{instance_type}</instanceType><totalInstanceCount>{nodes}"
            f"</totalInstanceCount><availableInstanceCount>{nodes - used}</availableInstanceCount>"
            f"<state>{state}</state><startDate>{begins_at:%Y-%m-%dT%H:%M:%S}.000Z</startDate>"
            f"<endDate>{ends_at:%Y-%m-%dT%H:%M:%S}.000Z</endDate><endDateType>limited</endDateType>"
            "<reservationType>capacity-block</reservationType></item>"
        )

    def list_service_quotas(self, call: Call, forward: Forward) -> Reply:
        """All quotas, a few to a page."""
        entries = [
            {"ServiceCode": "ec2", "QuotaCode": code, "QuotaName": name, "Value": value,
             "Unit": "None", "Adjustable": True, "GlobalQuota": False}
            for code, (name, value) in self.quotas.items()
        ]  # fmt: skip
        first = int(call.content.get("NextToken") or 0)
        reply: dict[str, object] = {"Quotas": entries[first : first + self.page]}
        if first + self.page < len(entries):
            reply["NextToken"] = str(first + self.page)
        return Reply.json(reply)

    def describe_capacity_reservations(self, call: Call, forward: Forward) -> Reply:
        """The blocks that were booked in the region."""
        items = "".join(b for b in self._blocks if f"<availabilityZone>{call.region}" in b)
        return _listed("DescribeCapacityReservations", "capacityReservationSet", items)


def _listed(action: str, field: str, items: str) -> Reply:
    return Reply.xml(
        f'<{action}Response xmlns="{NAMESPACE}"><requestId>0</requestId>'
        f"<{field}>{items}</{field}></{action}Response>"
    )
