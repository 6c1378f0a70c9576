"""What it takes to move data from where they lie to where a job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Pool

GIGABITS_PER_GIB = 2**30 * 8 / 1e9


@dataclass(frozen=True, slots=True)
class Transfer:
    """Moving data from one region to another: the list price, and the speed per node.

    ``gbps`` is in gigabits per second, None where nobody has measured it: the node's own network
    then counts, and no time at all where that is unknown too.
    """

    usd_per_gib: float
    gbps: float | None
    source: str

    def hours(self, gib: float, machine: InstanceType) -> float:
        """How long one node of ``machine`` takes to fetch ``gib``."""
        known = [gbps for gbps in (self.gbps, machine.network_gbps) if gbps]
        return gib * GIGABITS_PER_GIB / min(known) / 3600 if known else 0.0


TransferPrices = Callable[[str, str], Transfer | None]
"""From one "provider/region" to another, None where the price is unknown."""


def transfer_table(
    jobs: Iterable[Job], pools: Iterable[Pool], price: TransferPrices
) -> Mapping[tuple[str, str], Transfer]:
    """What is known of moving the jobs' data and checkpoints to the pools' regions and back."""
    stores = {store for job in jobs for store in _stores(job)}
    places = {f"{pool.provider}/{pool.region}" for pool in pools} if stores else ()
    ways = [way for store in stores for place in places for way in ((store, place), (place, store))]
    return {way: found for way in sorted(ways) if (found := price(*way)) is not None}


def _stores(job: Job) -> Iterable[str]:
    """Where the job's checkpoints and data lie, as far as it says so."""
    if job.checkpoint.region is not None:
        yield job.checkpoint.region
    if job.data is not None and job.data.region is not None:
        yield job.data.region
