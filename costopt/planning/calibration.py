"""A few steps of a job on one cheap node, to measure its speed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from costopt.domain.errors import InfeasibleError
from costopt.domain.job import Job, Phase
from costopt.domain.market import CapacityType, InstanceType, Offer
from costopt.planning.quotes import QuoteSet
from costopt.store.address import extend_uri

SPARE_TIME = 10.0
"""So many times as long as it is to train, the job that measures may take to report a speed."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The job that measures, the machine, and an offer of it.

    ``usd`` is for start-up, restore and ``train_s`` seconds of training at the offer's price.
    """

    job: Job
    machine: InstanceType
    offer: Offer
    train_s: float

    @property
    def usd(self) -> float:
        """Return the expected dollars."""
        return _price(self.offer) * self.hours

    @property
    def limit_s(self) -> float:
        """Return the seconds after which it is stopped if it has reported no speed."""
        return 4 * self.job.overhead_s + SPARE_TIME * self.train_s

    @property
    def hours(self) -> float:
        """Return the hours of the node, from its launch."""
        return (self.job.overhead_s + self.train_s) / 3600


def plan_calibration(job: Job, seen: QuoteSet, gpu: str | None, train_s: float) -> Calibration:
    """Return the calibration on the cheapest node of one offer, with ``gpu`` if it is given.

    Raises InfeasibleError where no single node can run the job.
    """
    from costopt.catalog import load_catalog
    from costopt.market.screening import screen_for_job

    catalog = load_catalog()
    wanted = job.resources if gpu is None else replace(job.resources, gpu_models=(gpu,))
    single = replace(wanted, min_nodes=1, max_nodes=1, min_gpus=None, max_gpus=None)
    usable, rejections = screen_for_job(seen.offers, replace(job, resources=single), catalog)
    rented = [each for each in usable if _is_rented(each)]
    if not rented:
        nearest = min(rejections, key=lambda each: "not among" in each.reason, default=None)
        why = "" if nearest is None else f": {nearest.reason}"
        raise InfeasibleError(f"no offer of a single node can run job {job.name!r}{why}")
    cheapest = min(rented, key=lambda each: (_price(each), each.pool))
    machine = catalog.instance_type(cheapest.pool)
    assert machine is not None
    one = replace(single, instance_types=(machine.name,))
    speed = job.gang_units_per_s(machine, 1)
    assert speed is not None
    # With all of its work, though it is stopped long before its end: a trainer that counts steps
    # reports units by the share of its steps in that work.
    lasts_s = 4 * job.overhead_s + 2 * job.work.amount / speed.low
    suffix = f"-calibration-{seen.now:%Y%m%d%H%M%S}"
    measuring = replace(
        job,
        name=f"{job.name[:36]}{suffix}",
        start_at=seen.now,
        deadline_at=seen.now + timedelta(seconds=lasts_s),
        resources=one,
        phases=(Phase("calibration", 1.0, 1, 1),),
        checkpoint=replace(job.checkpoint, uri=extend_uri(job.checkpoint.uri, suffix)),
        derived=(),
    )
    return Calibration(measuring, machine, cheapest, train_s)


def _is_rented(offer: Offer) -> bool:
    kinds = (CapacityType.SPOT, CapacityType.ON_DEMAND)
    price = offer.price_usd_per_hour
    return offer.pool.capacity_type in kinds and price is not None and offer.nodes_available != 0


def _price(offer: Offer) -> float:
    assert offer.price_usd_per_hour is not None
    return offer.price_usd_per_hour.value
