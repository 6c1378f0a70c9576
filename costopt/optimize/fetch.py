"""What a start must fetch from other regions, and what saves send back there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Pool
from costopt.domain.transfer import Transfer

Transfers = Mapping[tuple[str, str], Transfer]
"""By ("provider/region" from, "provider/region" to)."""

Stored = tuple[tuple[str | None, float, bool], ...]
"""Region, GiB and whether every save goes there."""


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """Hours and dollars of each start's transfer, and dollars of each save's."""

    hours: float = 0.0
    usd: float = 0.0
    save_usd: float = 0.0


NO_TRANSFER = TransferCosts()


def transfer_costs(
    pool: Pool, machine: InstanceType, job: Job, transfers: Transfers
) -> TransferCosts | None:
    """Moving the job's data and its checkpoint to ``pool``; None where a price is unknown.

    Free and at once where they lie in the pool's region, or nobody says where they lie. A gang
    fetches them once over one node's network, at the transfer's or the node's gbps, whichever is
    less; where neither is known the time is unknown and none is counted.
    """
    if job.checkpoint.region is None and job.data is None:
        return NO_TRANSFER
    here = f"{pool.provider}/{pool.region}"
    hours = usd = save_usd = 0.0
    for region, size_gib, saved in stored_locations(job):
        if region is None or size_gib <= 0 or region == here:
            continue
        fetched, sent = _known(transfers, region, here), _known(transfers, here, region)
        if fetched is None or (saved and sent is None):
            return None
        usd += size_gib * fetched.usd_per_gib
        hours += fetched.hours(size_gib, machine)
        if saved and sent is not None:
            save_usd += size_gib * sent.usd_per_gib
    return TransferCosts(hours, usd, save_usd)


def stored_locations(job: Job) -> Stored:
    """Where the job's checkpoint and its data lie."""
    checkpoint = (job.checkpoint.region, job.checkpoint.size_gib, True)
    if job.data is None:
        return (checkpoint,)
    return (checkpoint, (job.data.region, job.data.size_gib, False))


def _known(transfers: Transfers, origin: str, target: str) -> Transfer | None:
    """The transfer, None where there is none or its figures are no price or no speed."""
    found = transfers.get((origin, target))
    if found is None or not (math.isfinite(found.usd_per_gib) and found.usd_per_gib >= 0):
        return None
    speed = found.gbps
    return found if speed is None or (math.isfinite(speed) and speed > 0) else None
