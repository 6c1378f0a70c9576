"""Bills of ended nodes: what Google charges for them.

Nodes are billed by the second, for a minute at least
(cloud.google.com/compute/vm-instance-pricing, "Billing model"). A Spot node pays the spot price in
force at each time, which changes at most once a day (cloud.google.com/spot-vms/pricing).
Sustained-use discounts are not given on spot prices; on demand they are given at the end of the
month on the whole project's use, so they are in no node's bill here. A node that Google preempts in
its first minute is free (cloud.google.com/compute/docs/instances/spot, "Pricing").
"""

from __future__ import annotations

from datetime import datetime, timedelta

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import EndCause, Node, NodeBill
from costopt.domain.market import CapacityType
from costopt_gcp.capacity import SpotPriceInterval
from costopt_gcp.prices import GcePrices, in_force

MIN_S = 60.0
FREE_FIRST = timedelta(minutes=1)


class Billing:
    """Bills from the spot price history of the node's region."""

    def __init__(self, prices: GcePrices) -> None:
        self._prices = prices

    def bill(self, node: Node, now: datetime) -> NodeBill | None:
        """Return the node's bill, None while it is alive or if a price is missing.

        Raise ProviderError.
        """
        if node.ended_at is None:
            return None
        if node.pool.capacity_type is not CapacityType.SPOT or free(node):
            return bill_of(node, ())
        try:
            prices = self._prices.history(node.pool.region, node.pool.instance_type, now)
        except BadRequestError:
            # No prices of this type are published: only the price at launch is known.
            return None
        return bill_of(node, prices)


def free(node: Node) -> bool:
    """Return whether Google preempted the node in its first minute."""
    return (
        node.pool.capacity_type is CapacityType.SPOT
        and node.end_cause is EndCause.INTERRUPTED
        and node.ended_at is not None
        and node.ended_at - node.launched_at < FREE_FIRST
    )


def bill_of(node: Node, intervals: tuple[SpotPriceInterval, ...]) -> NodeBill | None:
    """Return the bill of an ended node, from the spot prices of its region.

    Return None if the spot price at any of its times is unknown.
    """
    if free(node):
        source = "free: Google preempted it in its first minute"
        return NodeBill(((node.launched_at, 0.0),), 0.0, source)
    if node.pool.capacity_type is not CapacityType.SPOT:
        reserved = node.pool.capacity_type is CapacityType.RESERVED
        source = "paid for with its reservation" if reserved else "the list price at launch"
        return NodeBill(((node.launched_at, node.usd_per_hour),), MIN_S, f"{source}, by the second")
    assert node.ended_at is not None
    changes = [price.at for price in intervals if node.launched_at < price.at < node.ended_at]
    prices: list[tuple[datetime, float]] = []
    for at in (node.launched_at, *changes):
        price = in_force(intervals, at)
        if price is None or price.usd_per_hour is None:
            return None
        prices.append((at, price.usd_per_hour))
    return NodeBill(tuple(prices), MIN_S, "the spot prices in force, by the second")
