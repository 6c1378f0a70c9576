"""The Spot Advisor: what AWS publishes of how often it takes spot nodes away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from costopt.domain.bucket import InterruptionBucket, hazard_from_interruption_bucket
from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.estimate import Estimate
from costopt.provider.cache import TtlCache
from costopt_aws.web import open_url

ADVISOR_URL = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
REFRESH_S = 12 * 3600.0
MAX_BYTES = 64 * 2**20

BUCKETS = {
    "<5%": InterruptionBucket.UNDER_5_PERCENT,
    "5-10%": InterruptionBucket.FROM_5_TO_10_PERCENT,
    "10-15%": InterruptionBucket.FROM_10_TO_15_PERCENT,
    "15-20%": InterruptionBucket.FROM_15_TO_20_PERCENT,
    ">20%": InterruptionBucket.OVER_20_PERCENT,
}
"""By label. The ``max`` that stands beside it is another figure: 11, 16 and 22 for 10, 15, 20 %."""

Buckets = Mapping[tuple[str, str], InterruptionBucket]
"""By region and instance type, for Linux."""


class SpotAdvisor:
    """The published buckets, asked for twice a day; none where they cannot be had."""

    def __init__(self, url: str = ADVISOR_URL) -> None:
        self._url = url
        self._kept: TtlCache[None, tuple[Buckets, datetime]] = TtlCache(REFRESH_S, 30 * 86400.0)

    def hazard_per_hour(self, region: str, instance_type: str, now: datetime) -> Estimate | None:
        """A prior of interruptions per node-hour (``costopt.domain.bucket``), None without one."""
        try:
            buckets, asked_at = self._kept.get(None, now, lambda: (self._fetch(), now))
        except ProviderError:
            return None
        bucket = buckets.get((region, instance_type))
        return None if bucket is None else hazard_from_interruption_bucket(bucket, asked_at)

    def _fetch(self) -> Buckets:
        with open_url(self._url) as stream:
            body = stream.read(MAX_BYTES)
        try:
            return read_buckets(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProviderUnavailableError(
                f"{self._url}: this is not the Spot Advisor's data: {type(error).__name__}: {error}"
            ) from error


def read_buckets(document: Mapping[str, Any]) -> Buckets:
    """The buckets of the published JSON; an entry whose label is unknown is left out."""
    labels = {
        each["index"]: BUCKETS.get(each["label"].replace(" ", "")) for each in document["ranges"]
    }
    found = {
        (region, name): labels.get(entry["r"])
        for region, systems in document["spot_advisor"].items()
        for name, entry in systems.get("Linux", {}).items()
    }
    return {key: bucket for key, bucket in found.items() if bucket is not None}
