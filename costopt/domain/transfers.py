"""Data transfers between regions: their prices and times, and those that starts and saves need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Pool
from costopt.domain.storage import PRICED_DISK, ROOT_GIB, ZONE_USD_PER_GIB, StoragePrice


@dataclass(frozen=True, slots=True)
class Transfer:
    """Moving data from one region to another: the list price, and the speed per node.

    ``gbps`` is in gigabits per second, None where it was not measured: the node's own network
    then counts, and no time at all where that is unknown too. ``storage`` is what disks and an
    object store cost where the data go, None where that is unknown.
    """

    usd_per_gib: float
    gbps: float | None
    source: str
    storage: StoragePrice | None = None

    def hours(self, gib: float, machine: InstanceType) -> float:
        """Return the hours that one node of ``machine`` takes to fetch ``gib``."""
        known = [gbps for gbps in (self.gbps, machine.network_gbps) if gbps]
        return gib * GIGABITS_PER_GIB / min(known) / 3600 if known else 0.0


TransferPrices = Callable[[str, str], Transfer | None]
"""Transfers from one "provider/region" to another; None where the price is unknown."""


def with_root_volumes(
    prices: TransferPrices, providers: Mapping[str, Mapping[str, object]]
) -> TransferPrices:
    """Return the prices with the root volumes of the providers' options ``root_gib``, a number of
    GiB, and ``disk_type``; the prices of other types of disk than the recorded ones are unknown."""
    if not any(options.keys() & {"root_gib", "disk_type"} for options in providers.values()):
        return prices

    def sized(from_region: str, to_region: str) -> Transfer | None:
        found = prices(from_region, to_region)
        options = providers.get(to_region.partition("/")[0], {})
        if found is None or found.storage is None:
            return found
        gib, price = options.get("root_gib"), found.storage.volume_usd_per_gib_month
        is_priced = options.get("disk_type", PRICED_DISK) == PRICED_DISK
        storage = replace(
            found.storage,
            root_gib=float(gib) if isinstance(gib, int | float) else ROOT_GIB,
            volume_usd_per_gib_month=price if is_priced else None,
        )
        return replace(found, storage=storage)

    return sized


def transfer_table(
    jobs: Iterable[Job], pools: Iterable[Pool], price: TransferPrices
) -> Mapping[tuple[str, str], Transfer]:
    """Return the known transfers between the pools' regions and the jobs' data and checkpoints, and
    those within each, for what storage costs there."""
    stores = {store for job in jobs for store in _stores(job)}
    places = {region_key(pool) for pool in pools}
    ways = {way for store in stores for place in places for way in ((store, place), (place, store))}
    ways |= {(place, place) for place in places | stores}
    return {way: found for way in sorted(ways) if (found := price(*way)) is not None}


def _stores(job: Job) -> Iterable[str]:
    """Yield the places of the job's checkpoints, data and cache, as far as they are known."""
    if job.checkpoint.region is not None:
        yield job.checkpoint.region
    if job.data is not None and job.data.region is not None:
        yield job.data.region
    yield from (item.region for item in job.cache if item.region is not None)


@dataclass(frozen=True, slots=True)
class DataTransfer:
    """``gib`` from one "provider/region" to another; ``transfer`` None: its price is unknown."""

    from_region: str
    to_region: str
    gib: float
    transfer: Transfer | None

    @property
    def usd(self) -> float | None:
        """Return dollars at the list price, None where it is unknown."""
        return None if self.transfer is None else self.gib * self.transfer.usd_per_gib

    def hours(self, machine: InstanceType) -> float:
        """Return the hours it takes, see Transfer; 0 where nothing is known of it."""
        return 0.0 if self.transfer is None else self.transfer.hours(self.gib, machine)


def start_transfers(
    job: Job, pool: Pool, prices: TransferPrices | None, *, restoring: bool
) -> tuple[DataTransfer, ...]:
    """Return what a gang in ``pool`` fetches before it trains: the data, and a checkpoint."""
    here = region_key(pool)
    stored = [] if job.data is None else [(job.data.region, job.data.size_gib)]
    if restoring:
        stored.append((job.checkpoint.region, job.checkpoint.size_gib))
    return tuple(
        DataTransfer(there, here, gib, None if prices is None else prices(there, here))
        for there, gib in stored
        if there is not None and there != here and gib > 0
    )


def cache_transfers(
    job: Job, pool: Pool, nodes: int, prices: TransferPrices | None
) -> tuple[DataTransfer, ...]:
    """Return what ``nodes`` new nodes in ``pool`` fetch of the job's cache from other regions."""
    here = region_key(pool)
    elsewhere = (
        (item.region, nodes * item.size_gib)
        for item in job.cache
        if item.region is not None and item.region != here and not item.in_image
    )
    return tuple(
        DataTransfer(there, here, gib, None if prices is None else prices(there, here))
        for there, gib in elsewhere
    )


def save_transfer(job: Job, pool: Pool, prices: TransferPrices | None) -> DataTransfer | None:
    """Return what a save of a gang in ``pool`` sends to another region, or None."""
    here, there, gib = region_key(pool), job.checkpoint.region, job.checkpoint.size_gib
    if there is None or there == here or gib <= 0:
        return None
    return DataTransfer(here, there, gib, None if prices is None else prices(here, there))


def zone_copy_usd(job: Job, provider: str) -> float:
    """Return dollars of what a save of a gang in several zones sends to another zone; 0 where the
    job keeps its snapshots in their zone, or the price is unknown."""
    usd_per_gib = ZONE_USD_PER_GIB.get(provider, 0.0) if job.checkpoint.across_zones else 0.0
    return job.checkpoint.size_gib * usd_per_gib


def save_paid_s(job: Job, nodes: Sequence[Node], prices: TransferPrices | None) -> float:
    """Return for how many seconds the gang could train for the dollars of one save.

    They are those of requests and of what it sends to another region or zone, as far as their
    prices are known. 0 where the nodes cost nothing.
    """
    usd_per_hour = sum(node.usd_per_hour for node in nodes)
    if usd_per_hour <= 0:
        return 0.0
    usd, _ = checkpoint_storage(job, job.checkpoint.size_gib, prices) or (0.0, 0.0)
    sent = [save_transfer(job, node.pool, prices) for node in nodes]
    usd += sum(move.usd or 0.0 for move in sent if move is not None) / len(nodes)
    if len({(node.pool.region, node.pool.zone) for node in nodes}) > 1:
        usd += zone_copy_usd(job, nodes[0].pool.provider)
    return 3600 * usd / usd_per_hour


def volume_usd_per_hour(pool: Pool, prices: TransferPrices | None) -> float | None:
    """Return dollars per hour of the root volume of a node in ``pool``, None where unknown."""
    price = _storage_price(region_key(pool), prices)
    return None if price is None else price.volume_usd_per_hour(pool.instance_type)


def checkpoint_storage(
    job: Job, gib: float, prices: TransferPrices | None
) -> tuple[float, float] | None:
    """Return dollars of the requests of a save of ``gib``, and per hour while it is kept.

    Folders cost nothing. None where the region of the store is not given, or its prices unknown.
    """
    if gib <= 0 or "://" not in job.checkpoint.uri or job.checkpoint.uri.startswith("file:"):
        return 0.0, 0.0
    price = job.checkpoint.region and _storage_price(job.checkpoint.region, prices)
    if not price:
        return None
    save, kept = price.save_usd(gib), price.kept_usd_per_hour(gib)
    return None if save is None or kept is None else (save, kept)


def milestone_count(job: Job) -> int:
    """Return how many checkpoints the job keeps for good by the time that it is over."""
    every = job.checkpoint.keep_every
    return 0 if every is None else int(job.work.amount // every)


def mean_kept_checkpoints(job: Job) -> float:
    """Return how many checkpoints are kept on average: the newest, and half of the milestones."""
    return job.checkpoint.keep + milestone_count(job) / 2


def _storage_price(region: str, prices: TransferPrices | None) -> StoragePrice | None:
    within = None if prices is None else prices(region, region)
    return None if within is None else within.storage


def pools_without_data(members: Iterable[Node], trained: Collection[str]) -> tuple[Pool, ...]:
    """Return a pool of each region in which no member was in an earlier gang of the job.

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
    """Return the region as "provider/region", as files and transfers name it."""
    return f"{pool.provider}/{pool.region}"
