"""Data that goes from one region to another because a job runs away from where they lie."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Pool
from costopt.domain.transfer import Transfer, TransferPrices


@dataclass(frozen=True, slots=True)
class DataTransfer:
    """``gib`` from one "provider/region" to another; ``transfer`` None: its price is unknown."""

    from_region: str
    to_region: str
    gib: float
    transfer: Transfer | None

    @property
    def usd(self) -> float | None:
        """Dollars at the list price, None where it is unknown."""
        return None if self.transfer is None else self.gib * self.transfer.usd_per_gib

    def hours(self, machine: InstanceType) -> float:
        """How long it takes, see Transfer; none is counted where nothing is known of it."""
        return 0.0 if self.transfer is None else self.transfer.hours(self.gib, machine)


def start_transfers(
    job: Job, pool: Pool, prices: TransferPrices | None, *, restoring: bool
) -> tuple[DataTransfer, ...]:
    """What a gang in ``pool`` fetches before it trains: the data, and a checkpoint to restore."""
    here = region_key(pool)
    stored = [] if job.data is None else [(job.data.region, job.data.size_gib)]
    if restoring:
        stored.append((job.checkpoint.region, job.checkpoint.size_gib))
    return tuple(
        DataTransfer(there, here, gib, None if prices is None else prices(there, here))
        for there, gib in stored
        if there is not None and there != here and gib > 0
    )


def save_transfer(job: Job, pool: Pool, prices: TransferPrices | None) -> DataTransfer | None:
    """What a save of a gang in ``pool`` sends to another region, None where it sends nothing."""
    here, there, gib = region_key(pool), job.checkpoint.region, job.checkpoint.size_gib
    if there is None or there == here or gib <= 0:
        return None
    return DataTransfer(here, there, gib, None if prices is None else prices(here, there))


def pools_without_data(members: Iterable[Node], trained: Collection[str]) -> tuple[Pool, ...]:
    """A pool of each region in which no member was in a gang of the job before.

    Members of earlier gangs, named by ``trained``, hold the data and share them in their region.
    """
    there: dict[str, list[Node]] = {}
    for node in members:
        there.setdefault(region_key(node.pool), []).append(node)
    return tuple(
        nodes[0].pool
        for nodes in there.values()
        if not any(node.node_id in trained for node in nodes)
    )


def region_key(pool: Pool) -> str:
    """The region as "provider/region", as files and transfers name it."""
    return f"{pool.provider}/{pool.region}"
