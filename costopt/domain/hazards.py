"""Published interruption rates of spot nodes, and the hazards to assume from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum
from typing import Any

from costopt.domain.estimate import Basis, Estimate

HOURS_PER_MONTH = 730.0
MIN_LIFETIME_H = 24.0
_TYPICAL_STAY_H = math.sqrt(HOURS_PER_MONTH * MIN_LIFETIME_H)


class InterruptionBucket(IntEnum):
    """AWS Spot Advisor: share of instances interrupted over the trailing month, by its labels."""

    UNDER_5_PERCENT = 0
    FROM_5_TO_10_PERCENT = 1
    FROM_10_TO_15_PERCENT = 2
    FROM_15_TO_20_PERCENT = 3
    OVER_20_PERCENT = 4

    @property
    def shares(self) -> tuple[float, float]:
        """Return the bounds of the label's share; the open bucket is closed at 95 %."""
        return _SHARES[self]

    @property
    def label(self) -> str:
        """Return the share as the Spot Advisor prints it."""
        return _LABELS[self]


_SHARES = ((0.0, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 0.20), (0.20, 0.95))
_LABELS = ("<5 %", "5–10 %", "10–15 %", "15–20 %", ">20 %")

_BUCKET_OF_LABEL = {
    "<5%": InterruptionBucket.UNDER_5_PERCENT,
    "5-10%": InterruptionBucket.FROM_5_TO_10_PERCENT,
    "10-15%": InterruptionBucket.FROM_10_TO_15_PERCENT,
    "15-20%": InterruptionBucket.FROM_15_TO_20_PERCENT,
    ">20%": InterruptionBucket.OVER_20_PERCENT,
}
# By label: the ``max`` beside a label is another figure, 11, 16 and 22 for 10, 15 and 20 %.

InterruptionBuckets = Mapping[tuple[str, str], InterruptionBucket]
"""By region and instance type, for Linux."""


def parse_spot_advisor(document: Mapping[str, Any]) -> InterruptionBuckets:
    """Return the buckets of the Spot Advisor's JSON, without entries whose label is unknown.

    Raise KeyError, TypeError or AttributeError for a document of another form.
    """
    labels = {
        each["index"]: _BUCKET_OF_LABEL.get(each["label"].replace(" ", ""))
        for each in document["ranges"]
    }
    found = {
        (region, name): labels.get(entry["r"])
        for region, systems in document["spot_advisor"].items()
        for name, entry in systems.get("Linux", {}).items()
    }
    return {key: bucket for key, bucket in found.items() if bucket is not None}


def hazard_from_interruption_bucket(bucket: InterruptionBucket, observed_at: datetime) -> Estimate:
    """Return interruptions per node-hour: a prior with a wide interval.

    h = −ln(1 − share) / stay, a constant hazard over the time for which an instance stayed. The
    weakness: the bucket is a share of instances over a month and does not say how long they stayed,
    so it is not a hazard rate; it is a mean over zones, and interruptions come in waves. The
    interval therefore spans stays from a day (with the highest share of the label) to the whole
    month (with the lowest); the value takes the middle share and the geometric mean of the stays,
    132 h. One observed interruption is more informative than this prior.
    """
    lowest, highest = bucket.shares
    return Estimate(
        value=_hazard_per_hour((lowest + highest) / 2, _TYPICAL_STAY_H),
        low=_hazard_per_hour(lowest, HOURS_PER_MONTH),
        high=_hazard_per_hour(highest, MIN_LIFETIME_H),
        basis=Basis.PRIOR,
        source=f"AWS Spot Advisor: {bucket.label} of instances interrupted in a month",
        observed_at=observed_at,
    )


def hazard_from_daily_shares(
    low: float, high: float, source: str, observed_at: datetime
) -> Estimate:
    """Return interruptions per node-hour where no bucket exists: a prior with a wide interval.

    ``low`` and ``high`` bound the share of spot nodes that a provider says it interrupts in a day;
    the value is that of the share in the middle. The bounds are widened fivefold each way: such
    figures cover every machine and not GPUs, and grow old.
    """
    return Estimate(
        value=_hazard_per_hour((low + high) / 2, 24.0),
        low=_hazard_per_hour(low, 24.0) / 5,
        high=_hazard_per_hour(high, 24.0) * 5,
        basis=Basis.PRIOR,
        source=f"{source}, widened fivefold",
        observed_at=observed_at,
    )


def _hazard_per_hour(share: float, stay_h: float) -> float:
    return -math.log1p(-share) / stay_h
