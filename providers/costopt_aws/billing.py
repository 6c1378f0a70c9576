"""What EC2 charges for a node that has ended.

Linux nodes are charged by the second, for 60 s at least (https://aws.amazon.com/ec2/pricing/,
"Per second billing"). A spot node pays, in each hour counted from its launch, the spot price in
force when that hour began (https://aws.amazon.com/ec2/faqs/, "What price will I pay for a Spot
instance?"). One that EC2 takes in its first hour is free; one that its user ends never is
(EC2 User Guide, "Billing for interrupted Spot Instances"). A Capacity Block is paid for when it is
booked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from costopt.domain.bill import NodeBill
from costopt.domain.fleet import EndCause, Node
from costopt.domain.market import CapacityType
from costopt_aws.clients import Clients
from costopt_aws.spot_prices import SpotPrice, SpotPrices
from costopt_aws.zones import Zones

HOUR = timedelta(hours=1)
MIN_BILLED_S = 60.0


class Billing:
    """Bills from the recorded spot prices of the node's zone, which AWS keeps for 90 days."""

    def __init__(self, clients: Clients, zones: Zones) -> None:
        self._spot = SpotPrices(clients, zones)

    def bill(self, node: Node) -> NodeBill | None:
        """None while the node lives, or where a price is missing. Raises ProviderError."""
        if node.ended_at is None:
            return None
        if node.pool.capacity_type is not CapacityType.SPOT or is_free(node):
            return compute_bill(node, ())
        pool = node.pool
        told = self._spot.history(
            pool.region, pool.instance_type, node.launched_at, node.ended_at + HOUR
        )
        return compute_bill(node, [price for price in told if price.zone_id == pool.zone])


def is_free(node: Node) -> bool:
    """Whether EC2 took the node in its first hour."""
    return (
        node.pool.capacity_type is CapacityType.SPOT
        and node.end_cause is EndCause.INTERRUPTED
        and node.ended_at is not None
        and node.ended_at - node.launched_at < HOUR
    )


def compute_bill(node: Node, changes: Sequence[SpotPrice]) -> NodeBill | None:
    """The bill of an ended node, whose zone's spot price changed as told, in order of time.

    None where it is not known what a spot node cost in some hour.
    """
    if node.pool.capacity_type is CapacityType.RESERVED:
        return NodeBill(((node.launched_at, 0.0),), 0.0, "paid for with its Capacity Block")
    if is_free(node):
        source = "free: EC2 interrupted it in its first hour"
        return NodeBill(((node.launched_at, 0.0),), 0.0, source)
    if node.pool.capacity_type is CapacityType.ON_DEMAND:
        price = ((node.launched_at, node.usd_per_hour),)
        return NodeBill(price, MIN_BILLED_S, "the list price at launch, by the second")
    prices = _hourly(node, changes)
    if prices is None:
        return None
    return NodeBill(prices, MIN_BILLED_S, "the spot price at the start of each hour, by the second")


def _hourly(node: Node, changes: Sequence[SpotPrice]) -> tuple[tuple[datetime, float], ...] | None:
    prices: list[tuple[datetime, float]] = []
    begins_at, end_at = node.launched_at, node.ended_at or node.launched_at
    while begins_at < end_at or not prices:
        in_force = [change for change in changes if change.at <= begins_at]
        usd_per_hour = in_force[-1].usd_per_hour if in_force else None
        if usd_per_hour is None:
            return None
        if not prices or prices[-1][1] != usd_per_hour:
            prices.append((begins_at, usd_per_hour))
        begins_at += HOUR
    return tuple(prices)
