"""Screening of offers: which may be used at all, and why the others may not."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from costopt.domain.estimate import Basis
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, InstanceType, Offer, Pool
from costopt.domain.plan import Rejection
from costopt.domain.policy import Policy
from costopt.domain.ports import InstanceCatalog

Screened = tuple[tuple[Offer, ...], tuple[Rejection, ...]]


def screen_offers(
    offers: Iterable[Offer], policy: Policy, now: datetime, *, check_age: bool = True
) -> Screened:
    """Offers that the policy allows and whose price is known and fresh; reasons for the others.

    Rejection codes: ``policy``, ``price_unknown``, ``price_invalid`` (not finite, or not above 0;
    reserved capacity, which is paid for anyhow, and capacity that the account calls free may cost
    nothing) and ``price_stale`` (older than ``limits.max_price_age_s``). A list price is valid
    until the provider publishes another, so a price with basis LISTED is never stale; ``check_age``
    False spares the others too, for price lists, which ``screen_age`` judges.
    """
    usable: list[Offer] = []
    rejections: list[Rejection] = []
    max_age_s = policy.limits.max_price_age_s if check_age else None
    for offer in offers:
        refusal = policy.limits.rejection_reason(offer.pool)
        rejection = (
            Rejection(offer.pool, "policy", refusal)
            if refusal is not None
            else _price_rejection(offer, max_age_s, now)
        )
        if rejection is None:
            usable.append(offer)
        else:
            rejections.append(rejection)
    return tuple(usable), tuple(rejections)


DEFAULT_MAX_AGE_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """How old a figure of a price list may be to count in a plan.

    Unless ``strict``, older figures are left out only where newer ones exist, so that a plan can
    always be made.
    """

    max_s: float = DEFAULT_MAX_AGE_S
    strict: bool = False


def screen_age(offers: Sequence[Offer], limit: AgeLimit, now: datetime) -> Screened:
    """Offers whose price is not too old; the others with the code ``price_old``.

    Unless the limit is strict, older prices count where no offer has a newer one. Older list prices
    also count where only spot prices are newer, as without on-demand no deadline could be kept.
    """
    fresh = {o.pool.capacity_type for o in offers if not _is_older(o, limit.max_s, now)}
    usable: list[Offer] = []
    rejections: list[Rejection] = []
    for offer in offers:
        kind = offer.pool.capacity_type
        spared = not fresh or (kind not in fresh and kind.is_uninterruptible)
        if (spared and not limit.strict) or not _is_older(offer, limit.max_s, now):
            usable.append(offer)
            continue
        price = offer.price_usd_per_hour
        age_s = price.age_s(now) if price else None
        reason = f"the price is {_span(age_s or 0.0)} old, more than {_span(limit.max_s)}"
        rejections.append(Rejection(offer.pool, "price_old", reason))
    return tuple(usable), tuple(rejections)


PRICE_RISES = ((0.0, 1.0), (30.0, 1.10), (60.0, 1.16), (120.0, 1.25), (365.0, 1.32))
"""Days, and at the 95th percentile how many times as high a spot price was after them, in Google
Cloud's prices of GPU machines from 2022 to 2026; later no higher (540 days: 1.33)."""


def screen_outdated(
    offers: Sequence[Offer], machines: Mapping[Pool, InstanceType] | InstanceCatalog, now: datetime
) -> Screened:
    """Offers without those of spot that only an old price makes cheaper than one of the same GPUs
    with a fresher price, which may by now be below; the others with the code ``price_outdated``."""
    alike: dict[tuple[str, int], list[tuple[float, float, Offer]]] = defaultdict(list)
    for offer in offers:
        price, machine = offer.price_usd_per_hour, _machine_of(offer.pool, machines)
        age_s = price.age_s(now) if price else None
        spot = offer.pool.capacity_type is CapacityType.SPOT
        if spot and price and machine and age_s is not None:
            alike[machine.gpu.model, machine.gpu_count].append((age_s, price.value, offer))
    rejections = {}
    for group in alike.values():
        for age_s, usd, offer in group:
            fresher = [
                other
                for other_s, other_usd, other in group
                if other_s < age_s
                and usd < other_usd
                and other_usd * _rise(other_s) <= usd * _rise(age_s)
            ]
            if age_s > DEFAULT_MAX_AGE_S and fresher:
                reason = (
                    f"the price is {_span(age_s)} old, so that it may be above the fresher one of "
                    f"{fresher[0].pool}"
                )
                rejections[offer.pool] = Rejection(offer.pool, "price_outdated", reason)
    kept = tuple(offer for offer in offers if offer.pool not in rejections)
    return kept, tuple(rejections.values())


def _rise(age_s: float) -> float:
    """How many times as high a price of this age may be, interpolated."""
    days = age_s / 86_400
    for (begin, before), (end, after) in pairwise(PRICE_RISES):
        if days < end:
            return before + (after - before) * max(0.0, days - begin) / (end - begin)
    return PRICE_RISES[-1][1]


def _is_older(offer: Offer, max_s: float, now: datetime) -> bool:
    price = offer.price_usd_per_hour
    age_s = price.age_s(now) if price else None
    return age_s is not None and age_s > max_s


def screen_for_job(
    offers: Iterable[Offer], job: Job, machines: Mapping[Pool, InstanceType] | InstanceCatalog
) -> Screened:
    """Offers whose machine may run ``job`` at a known speed, and the other ones' reasons.

    Rejection codes: ``unknown_instance_type`` (not in the catalogue), ``resources`` (the job does
    not allow the machine) and ``throughput_unknown`` (no measured point and no FLOPs for its GPU).
    """
    usable: list[Offer] = []
    rejections: list[Rejection] = []
    judged: dict[InstanceType | None, tuple[str, str] | None] = {}
    for offer in offers:
        machine = _machine_of(offer.pool, machines)
        if machine not in judged:
            judged[machine] = _unfit(machine, job)
        unfit = judged[machine]
        if unfit is None:
            usable.append(offer)
        else:
            rejections.append(Rejection(offer.pool, *unfit))
    return tuple(usable), tuple(rejections)


def _price_rejection(offer: Offer, max_age_s: float | None, now: datetime) -> Rejection | None:
    pool, price = offer.pool, offer.price_usd_per_hour
    if price is None:
        return Rejection(pool, "price_unknown", offer.unknown_because or "the price is unknown")
    may_be_free = offer.is_free or pool.capacity_type is CapacityType.RESERVED
    free = price.value == 0 and may_be_free
    if not math.isfinite(price.value) or (price.value <= 0 and not free):
        return Rejection(
            pool,
            "price_invalid",
            f"the price {price.value:g} $/h is not valid (source: {price.source})",
        )
    age_s = price.age_s(now)
    if max_age_s is None or age_s is None or price.basis is Basis.LISTED or age_s <= max_age_s:
        return None
    return Rejection(
        pool,
        "price_stale",
        f"the price is {_span(age_s)} old, the policy allows {_span(max_age_s)}",
    )


def _machine_of(
    pool: Pool, machines: Mapping[Pool, InstanceType] | InstanceCatalog
) -> InstanceType | None:
    if isinstance(machines, Mapping):
        return machines.get(pool)
    return machines.instance_type(pool)


def _unfit(machine: InstanceType | None, job: Job) -> tuple[str, str] | None:
    if machine is None:
        return "unknown_instance_type", "the catalogue does not hold this instance type"
    refusal = job.resources.rejection_reason(machine)
    if refusal is not None:
        return "resources", refusal
    gpus = machine.gpu_count * job.resources.node_counts(machine)[0]
    throughputs = [job.throughput, *(p.throughput for p in job.phases if p.throughput is not None)]
    speeds = [s for t in throughputs if (s := t.units_per_s(machine, gpus)) is not None]
    if not speeds:
        return "throughput_unknown", f"the job says nothing about its speed on {machine.gpu.model}"
    if not any(math.isfinite(speed.value) and speed.value > 0 for speed in speeds):
        return (
            "throughput_unknown",
            f"{speeds[0].value:g} {job.work.unit.value}/s on {machine.gpu.model} is not a speed",
        )
    return None


def _span(seconds: float) -> str:
    """Seconds as a person reads them: 45 s, 12 min, 3.5 h or 2.0 d."""
    for unit_s, unit, digits in ((86400, "d", 1), (3600, "h", 1), (60, "min", 0)):
        if abs(seconds) >= unit_s:
            return f"{seconds / unit_s:.{digits}f} {unit}"
    return f"{seconds:.0f} s"
