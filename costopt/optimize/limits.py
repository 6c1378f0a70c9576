"""Limits on a gang by itself: zone share, nodes, hourly dollars, kilowatts, quotas."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from costopt.domain.market import Offer
from costopt.domain.plan import Rejection
from costopt.domain.policy import Limits
from costopt.optimize.caps import gang_busy_kw
from costopt.optimize.demand import Demand
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest, Quota
from costopt.optimize.rows import Mask, Rows, fits_room, gang_sum, mentioned, price_of
from costopt.optimize.shared import all_quotas, is_reserved, room_nodes

ROUNDING_KW = 1e-9


def gang_limits(
    offers: tuple[Offer, ...], rows: Rows, request: PlanRequest, demand: Demand
) -> list[tuple[str, str, Mask]]:
    """(code, reason, rows that pass) of every limit of the policy and every quota."""
    limits = request.policy.limits
    found: list[tuple[str, str, Mask]] = []
    if any(is_reserved(offer.pool) for offer in offers):
        reason = "the reservation has fewer nodes than the smallest gang"
        found.append(("capacity", reason, _within_reservation(offers, rows, request, demand)))
    if limits.max_zone_share is not None:
        reason = f"more than {limits.max_zone_share:.0%} of the nodes would stand in one zone"
        found.append(("zone_share", reason, _within_zone_share(rows, limits)))
    if limits.max_nodes is not None:
        reason = f"the policy allows {limits.max_nodes} nodes"
        found.append(("limit", reason, rows.nodes <= limits.max_nodes))
    if limits.max_usd_per_hour is not None:
        reason = f"the smallest gang costs more than {limits.max_usd_per_hour:g} $/h"
        found.append(("limit", reason, _usd_per_hour(offers, rows) <= limits.max_usd_per_hour))
    if limits.max_kw is not None:
        reason = f"the smallest gang draws more than {limits.max_kw:g} kW"
        found.append(("limit", reason, _within_kw(offers, rows, request, limits.max_kw)))
    found.extend(
        ("quota", f"over the quota {quota.name}", _within_quota(offers, rows, request, quota))
        for quota in all_quotas(request)
        if quota.tenant in (None, demand.job.tenant)
    )
    return found


def _within_reservation(
    offers: tuple[Offer, ...], rows: Rows, request: PlanRequest, demand: Demand
) -> Mask:
    most = [
        room_nodes(offer, request, demand) if is_reserved(offer.pool) else math.inf
        for offer in offers
    ]
    return fits_room(rows, np.array(most))


def _within_quota(
    offers: tuple[Offer, ...], rows: Rows, request: PlanRequest, quota: Quota
) -> Mask:
    machines = [request.machines[offer.pool] for offer in offers]
    first = rows.first()
    counted = np.array([quota.matches(o.pool, m) for o, m in zip(offers, machines, strict=True)])
    passes = np.ones(len(rows.nodes), dtype=bool)
    if not len(first):
        return passes
    if quota.max_nodes is not None:
        passes &= rows.nodes <= quota.max_nodes
    if quota.max_gpus is not None:
        gpus = np.array([machine.gpu_count for machine in machines])
        passes &= rows.nodes * gpus[first] <= quota.max_gpus
    if quota.max_vcpus is not None:
        vcpus = np.array([machine.vcpus for machine in machines])
        passes &= rows.nodes * vcpus[first] <= quota.max_vcpus
    if quota.max_usd_per_hour is not None:
        passes &= _usd_per_hour(offers, rows) <= quota.max_usd_per_hour
    if quota.max_kw is not None:
        passes &= _within_kw(offers, rows, request, quota.max_kw)
    allowed: Mask = passes | ~counted[first]
    return allowed


def _usd_per_hour(offers: tuple[Offer, ...], rows: Rows) -> Array:
    return gang_sum(rows, np.array([price_of(offer) for offer in offers]))


def _within_kw(offers: tuple[Offer, ...], rows: Rows, request: PlanRequest, most_kw: float) -> Mask:
    """What the whole gang draws at the meter while it trains, under its power cap."""
    busy_kw = gang_busy_kw(rows, [request.powers[offer.pool] for offer in offers])
    allowed: Mask = busy_kw <= most_kw + ROUNDING_KW
    return allowed


def _within_zone_share(rows: Rows, limits: Limits) -> Mask:
    """At most max(1, ⌊share · n⌋) nodes of a gang in a zone: a lone node is in one anyhow."""
    share = limits.max_zone_share or 0.0
    most = np.array(
        [
            max(n for _, n in parts) if parts else int(size)
            for parts, size in zip(rows.spread, rows.nodes, strict=True)
        ],
        dtype=np.int64,
    )
    allowed: Mask = most <= np.maximum(1, np.floor(share * rows.nodes + 1e-9))
    return allowed


def apply_limits(
    rows: Rows, offers: tuple[Offer, ...], filters: list[tuple[str, str, Mask]]
) -> tuple[Rows, tuple[Rejection, ...]]:
    """Rows that pass every filter; an offer is refused by the one that took its last row."""
    rejections: list[Rejection] = []
    present = mentioned(rows)
    for number in sorted(set(range(len(offers))) - present):
        reason = "no phase of the job allows a gang of this machine"
        rejections.append(Rejection(offers[number].pool, "gang_size", reason))
    masks = list(accumulate((mask for _, _, mask in filters), np.logical_and))
    for (code, reason, _), mask in zip(filters, masks, strict=True):
        left = mentioned(rows.take(mask))
        rejections.extend(
            Rejection(offers[number].pool, code, reason) for number in sorted(present - left)
        )
        present = left
    return (rows.take(masks[-1]) if masks else rows), tuple(rejections)
