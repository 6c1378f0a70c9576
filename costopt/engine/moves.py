"""What it costs to have the job's data and checkpoints where its gang is not."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from costopt.domain.events import DataMoved
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.move import DataTransfer, pools_without_data, save_transfer, start_transfers
from costopt.domain.transfer import TransferPrices

UNKNOWN_PRICE = "no known price"


def start_transfer_events(
    job: Job,
    members: Iterable[Node],
    trained: Collection[str],
    prices: TransferPrices | None,
    now: datetime,
    *,
    restoring: bool,
) -> tuple[DataMoved, ...]:
    """What a new gang fetches; ``trained`` are the nodes that were in a gang of the job before."""
    return tuple(
        _moved(job, move, now, "start")
        for pool in pools_without_data(members, trained)
        for move in start_transfers(job, pool, prices, restoring=restoring)
    )


def save_transfer_events(
    job: Job, pool: Pool | None, prices: TransferPrices | None, at: datetime
) -> tuple[DataMoved, ...]:
    """What a checkpoint that was saved in ``pool`` sends away."""
    move = None if pool is None else save_transfer(job, pool, prices)
    return () if move is None else (_moved(job, move, at, "save"),)


def _moved(job: Job, move: DataTransfer, at: datetime, why: str) -> DataMoved:
    usd = move.usd
    return DataMoved(
        at=at,
        job=job.name,
        from_region=move.from_region,
        to_region=move.to_region,
        gib=move.gib,
        usd_micros=None if usd is None else round(usd * 1_000_000),
        source=UNKNOWN_PRICE if move.transfer is None else move.transfer.source,
        why=why,
    )
