"""From a share of stopped VMs to interruptions per node-hour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from costopt.domain.estimate import Basis, Estimate
from costopt_gcp.capacity_history import DailyPreemptions

MIN_LIFETIME_H = 2.0
MAX_LIFETIME_H = 168.0
"""How long Spot VMs run until they stop for whatever reason: Google does not say. From jobs of a
couple of hours to services that run for a week; widened by us, not published."""

TYPICAL_STAY_H = math.sqrt(MIN_LIFETIME_H * MAX_LIFETIME_H)


def hazard_from_shares(days: Sequence[DailyPreemptions], now: datetime) -> Estimate | None:
    """Interruptions per node-hour: a prior with a wide interval; None where no day is told.

    The share is preempted ÷ stopped, whatever the reason of the stop, so it is no hazard: it does
    not say how long the VMs ran. With competing risks the hazard of preemption is the share times
    the hazard of any stop, h = share ÷ mean stay. The stay is unknown, so the interval takes the
    lowest tenth of the days with the longest stay and the highest tenth with the shortest; the
    value takes the mean share and the geometric mean of the stays, 18 h. Where every share is 0,
    the high end is that of one preemption more than was seen, 1 ÷ (days + 1). What we see of our
    own nodes says more than this prior soon.
    """
    if not days:
        return None
    shares = sorted(day.share for day in days)
    tenth = len(shares) // 10
    low, high = shares[tenth], max(shares[-1 - tenth], 1 / (len(shares) + 1))
    mean = math.fsum(shares) / len(shares)
    return Estimate(
        value=mean / TYPICAL_STAY_H,
        low=min(low, mean) / MAX_LIFETIME_H,
        high=max(high, mean) / MIN_LIFETIME_H,
        basis=Basis.PRIOR,
        source=f"Google Cloud: {mean:.0%} of stopped Spot VMs were preempted, {len(days)} days",
        observed_at=now,
    )
