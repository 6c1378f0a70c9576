"""Bills of ended nodes from recorded prices, and charges of jobs from Cost Explorer.

Linux nodes are charged by the second, for 60 s at least (https://aws.amazon.com/ec2/pricing/,
"Per second billing"). A spot node pays, in each hour counted from its launch, the spot price in
force when that hour began (https://aws.amazon.com/ec2/faqs/, "What price will I pay for a Spot
instance?"). A spot node that EC2 interrupts in its first hour is free; one that its user terminates
never is (EC2 User Guide, "Billing for interrupted Spot Instances"). A Capacity Block is paid for
when it is booked.

Cost Explorer reports what AWS charged for a job, by the tags of its nodes. Tags count from the day
on which they are activated as cost allocation tags in the billing console, and figures are a day
late. Each request costs $0.01 (https://aws.amazon.com/aws-cost-management/pricing/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from costopt.domain.fleet import EndCause, Node, NodeBill, ProviderCharge
from costopt.domain.market import CapacityType
from costopt_aws import instances
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors
from costopt_aws.regions import Zones
from costopt_aws.spot_prices import SpotPrice, SpotPrices

HOUR = timedelta(hours=1)
MIN_BILLED_S = 60.0


class Billing:
    """Bills from the spot price history of the node's zone, which AWS keeps for 90 days."""

    def __init__(self, clients: Clients, zones: Zones) -> None:
        self._spot = SpotPrices(clients, zones)

    def bill(self, node: Node) -> NodeBill | None:
        """Return the node's bill, None while it is alive or if a price is missing.

        Raise ProviderError.
        """
        if node.ended_at is None:
            return None
        if node.pool.capacity_type is not CapacityType.SPOT or is_free(node):
            return compute_bill(node, ())
        pool = node.pool
        prices = self._spot.history(
            pool.region, pool.instance_type, node.launched_at, node.ended_at + HOUR
        )
        return compute_bill(node, [price for price in prices if price.zone_id == pool.zone])


def is_free(node: Node) -> bool:
    """Return whether EC2 interrupted the node in its first hour."""
    return (
        node.pool.capacity_type is CapacityType.SPOT
        and node.end_cause is EndCause.INTERRUPTED
        and node.ended_at is not None
        and node.ended_at - node.launched_at < HOUR
    )


def compute_bill(node: Node, changes: Sequence[SpotPrice]) -> NodeBill | None:
    """Return the bill of an ended node; spot price changes of its zone are in order of time.

    Return None if the spot price of any of its hours is unknown.
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


HOME = "us-east-1"
METRIC = "UnblendedCost"
COMPUTE = "Amazon Elastic Compute Cloud - Compute"
DAY = timedelta(days=1)


class CostExplorer:
    """GetCostAndUsage by day, for EC2 compute alone: volumes and traffic are other services."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def charge(
        self, owner: str, job: str, since: datetime, until: datetime
    ) -> ProviderCharge | None:
        """Return the job's cost in dollars on the days from ``since`` to ``until``.

        Return None if Cost Explorer knows nothing of the job's tags: AWS then reports a cost of 0.
        Raise ProviderError.
        """
        from_at = _midnight(since)
        until_at = _midnight(until) + DAY
        days = self._days(owner, job, from_at, until_at)
        usd = sum(float(day["Total"][METRIC]["Amount"]) for day in days if METRIC in day["Total"])
        if usd <= 0:
            return None
        estimated = ", still an estimate" if any(day.get("Estimated") for day in days) else ""
        return ProviderCharge("aws", job, from_at, until_at, usd, f"Cost Explorer{estimated}")

    def _days(
        self, owner: str, job: str, from_at: datetime, until_at: datetime
    ) -> list[Mapping[str, Any]]:
        client = self._clients.reading("ce", HOME)
        asked: dict[str, Any] = {
            "TimePeriod": {"Start": f"{from_at:%Y-%m-%d}", "End": f"{until_at:%Y-%m-%d}"},
            "Granularity": "DAILY",
            "Metrics": [METRIC],
            "Filter": {
                "And": [
                    {"Tags": {"Key": instances.OWNER, "Values": [owner]}},
                    {"Tags": {"Key": instances.JOB, "Values": [job]}},
                    {"Dimensions": {"Key": "SERVICE", "Values": [COMPUTE]}},
                ]
            },
        }
        days: list[Mapping[str, Any]] = []
        while True:
            with map_errors("ce:GetCostAndUsage", f"cost of job {job}"):
                response = client.get_cost_and_usage(**asked)
                days += response["ResultsByTime"]
            token = response.get("NextPageToken")
            if not token:
                return days
            asked["NextPageToken"] = token


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
