"""What AWS itself says that a job cost, by the tags of its nodes.

Tags count from when they are activated as cost allocation tags in the billing console, and figures
come a day late. Each question costs $0.01 (https://aws.amazon.com/aws-cost-management/pricing/).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from costopt.domain.bill import ProviderCharge
from costopt_aws import tags
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

HOME = "us-east-1"
METRIC = "UnblendedCost"
COMPUTE = "Amazon Elastic Compute Cloud - Compute"
DAY = timedelta(days=1)


class CostExplorer:
    """GetCostAndUsage by day, of EC2's compute alone: volumes and traffic are other lines."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def charge(
        self, owner: str, job: str, since: datetime, until: datetime
    ) -> ProviderCharge | None:
        """The job's cost on the days from ``since`` to ``until``.

        None where nothing is known of these tags, which AWS tells as no cost at all. Raises
        ProviderError.
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
                    {"Tags": {"Key": tags.OWNER, "Values": [owner]}},
                    {"Tags": {"Key": tags.JOB, "Values": [job]}},
                    {"Dimensions": {"Key": "SERVICE", "Values": [COMPUTE]}},
                ]
            },
        }
        days: list[Mapping[str, Any]] = []
        while True:
            with map_errors("ce:GetCostAndUsage", f"cost of job {job}"):
                answer = client.get_cost_and_usage(**asked)
                days += answer["ResultsByTime"]
            token = answer.get("NextPageToken")
            if not token:
                return days
            asked["NextPageToken"] = token


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
