"""From offers to the table of configurations of one job, with a reason for every offer left out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.plan import Rejection
from costopt.domain.policy import Limits, Objective
from costopt.domain.power import NodePower
from costopt.market.screen import screen_for_job, screen_offers
from costopt.optimize.configuration import ConfigurationTable, Parts
from costopt.optimize.demand import Demand
from costopt.optimize.rates import (
    Array,
    intervals_s,
    loss_square_s2,
    paid_per_useful,
    quantile_weight,
    towards,
)
from costopt.optimize.request import PlanRequest

HOPELESS = 1e6
"""Paid hours per useful hour beyond which a configuration is said never to get the work done."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The bare rows: which offer or spread, how many nodes."""

    offer: NDArray[np.int64]
    nodes: NDArray[np.int64]
    spread: tuple[Parts, ...]

    def take(self, mask: Mask) -> _Rows:
        kept = np.flatnonzero(mask)
        return _Rows(self.offer[kept], self.nodes[kept], tuple(self.spread[i] for i in kept))

    def parts(self, row: int) -> Parts:
        return self.spread[row] or ((int(self.offer[row]), int(self.nodes[row])),)


def enumerate_configurations(
    request: PlanRequest, demand: Demand
) -> tuple[ConfigurationTable, tuple[Rejection, ...]]:
    """Every configuration that the job, the policy and the quotas allow, alone, at any time.

    Rejection codes besides those of ``costopt.market.screen``: ``hazard_unknown``,
    ``hazard_invalid``, ``hazard_too_high``, ``power_unknown``, ``power_invalid``,
    ``carbon_unknown``, ``gang_size``, ``zone_share``, ``quota`` and ``limit``.
    """
    offers, rejections = _screen(request, demand)
    rows = _rows(offers, request, demand)
    filters = _filters(offers, rows, request, demand)
    rows, refused = _apply(rows, offers, filters)
    table = _table(offers, rows, request, demand)
    hopeful = table.paid_units_per_hour * HOPELESS > table.speed * 3600
    lost = set(table.offer.tolist()) - set(table.offer[hopeful].tolist()) - {-1}
    hopeless = tuple(
        Rejection(
            offers[i].pool, "hazard_too_high", "interrupted so often that the work never gets done"
        )
        for i in sorted(lost)
    )
    return table.take(hopeful), rejections + refused + hopeless


def _screen(
    request: PlanRequest, demand: Demand
) -> tuple[tuple[Offer, ...], tuple[Rejection, ...]]:
    priced, unpriced = screen_offers(request.offers, request.policy, request.now, check_age=False)
    fitting, unfit = screen_for_job(priced, demand.job, request.machines)
    needs_carbon = request.policy.objective.usd_per_tonne_co2e > 0
    usable: list[Offer] = []
    rejections = [*unpriced, *unfit]
    for offer in fitting:
        unknown = _hazard_fault(offer) or _power_fault(request.powers.get(offer.pool), needs_carbon)
        if unknown is None:
            usable.append(offer)
        else:
            rejections.append(Rejection(offer.pool, *unknown))
    return tuple(usable), tuple(rejections)


def _hazard_fault(offer: Offer) -> tuple[str, str] | None:
    hazard = offer.hazard_per_hour
    if hazard is None:
        if offer.pool.capacity_type.interruptible:
            return "hazard_unknown", "nothing is known of how often this pool is interrupted"
        return None
    if not (math.isfinite(hazard.high) and hazard.low >= 0):
        return "hazard_invalid", f"a hazard of {hazard.value:g} per hour is no rate"
    return None


def _power_fault(power: NodePower | None, needs_carbon: bool) -> tuple[str, str] | None:
    if power is None:
        return "power_unknown", "the power of this instance type is unknown"
    if not all(math.isfinite(w) and w >= 0 for w in (power.idle_w, power.busy_w, power.pue)):
        return "power_invalid", "the power figures are not finite numbers from 0 up"
    carbon = power.gco2e_per_kwh
    if carbon is None or not math.isfinite(carbon):
        unknown = "the carbon intensity of the region is unknown and the policy weighs carbon"
        return ("carbon_unknown", unknown) if needs_carbon else None
    return None


def _rows(offers: tuple[Offer, ...], request: PlanRequest, demand: Demand) -> _Rows:
    """Plain pools at every gang size, then the spreads."""
    counts: dict[InstanceType, tuple[int, ...]] = {}
    numbers: list[int] = []
    nodes: list[int] = []
    for number, offer in enumerate(offers):
        machine = request.machines[offer.pool]
        if machine not in counts:
            counts[machine] = _gang_sizes(machine, demand)
        numbers.extend([number] * len(counts[machine]))
        nodes.extend(counts[machine])
    plain = len(nodes)
    spreads = list(_spreads(offers, request, counts)) if _spread_matters(offers, request) else []
    return _Rows(
        np.array(numbers + [-1] * len(spreads), dtype=np.int64),
        np.array(nodes + [sum(n for _, n in parts) for parts in spreads], dtype=np.int64),
        ((),) * plain + tuple(spreads),
    )


def _gang_sizes(machine: InstanceType, demand: Demand) -> tuple[int, ...]:
    return tuple(
        n
        for n in demand.job.resources.node_counts(machine)
        if any(stage.min_nodes <= n <= stage.max_nodes for stage in demand.stages)
    )


def _spread_matters(offers: tuple[Offer, ...], request: PlanRequest) -> bool:
    """At constant prices a spread costs no less than its cheapest zone alone.

    So it is only worth a row where the policy asks for it or a zone may be too small.
    """
    share = request.policy.limits.max_zone_share
    return (share is not None and share < 1) or any(o.nodes_available is not None for o in offers)


def _spreads(
    offers: tuple[Offer, ...],
    request: PlanRequest,
    counts: Mapping[InstanceType, tuple[int, ...]],
) -> Iterable[Parts]:
    """Even spreads over the cheapest two, three, … zones of one region × type × market."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, offer in enumerate(offers):
        pool = offer.pool
        groups[pool.provider, pool.region, pool.instance_type, pool.capacity_type].append(number)
    for members in groups.values():
        members.sort(key=lambda i: (_price(offers[i]), offers[i].pool))
        sizes = counts[request.machines[offers[members[0]].pool]]
        for zones in range(2, len(members) + 1):
            for size in sizes:
                if size >= zones:
                    each, over = divmod(size, zones)
                    yield tuple((members[z], each + (z < over)) for z in range(zones))


def _price(offer: Offer) -> float:
    assert offer.price_usd_per_hour is not None
    return offer.price_usd_per_hour.value


def _filters(
    offers: tuple[Offer, ...], rows: _Rows, request: PlanRequest, demand: Demand
) -> list[tuple[str, str, Mask]]:
    """(code, reason, rows that pass) for every limit on a gang by itself."""
    limits, everything = request.policy.limits, np.ones(len(rows.nodes), dtype=bool)
    first = np.array(
        [offer if offer >= 0 else spread[0][0] for offer, spread in _pairs(rows)], dtype=np.int64
    )
    filters: list[tuple[str, str, Mask]] = []
    if limits.max_zone_share is not None:
        reason = f"more than {limits.max_zone_share:.0%} of the nodes would stand in one zone"
        filters.append(("zone_share", reason, _within_zone_share(rows, limits)))
    if limits.max_nodes is not None:
        filters.append(
            ("limit", f"the policy allows {limits.max_nodes} nodes", rows.nodes <= limits.max_nodes)
        )
    if limits.max_usd_per_hour is not None:
        usd_per_hour = _gang_sum(rows, np.array([_price(o) for o in offers]))
        reason = f"the smallest gang costs more than {limits.max_usd_per_hour:g} $/h"
        filters.append(("limit", reason, usd_per_hour <= limits.max_usd_per_hour))
    per_node = np.array([request.machines[o.pool].gpu_count for o in offers], dtype=np.int64)
    for quota in request.quotas:
        counted = np.array([quota.matches(o.pool, request.machines[o.pool]) for o in offers])
        if not counted.any():
            continue
        passes = everything.copy()
        if quota.max_nodes is not None:
            passes &= rows.nodes <= quota.max_nodes
        if quota.max_gpus is not None:
            passes &= rows.nodes * per_node[first] <= quota.max_gpus
        filters.append(("quota", f"over the quota {quota.name}", passes | ~counted[first]))
    return filters


def _pairs(rows: _Rows) -> Iterable[tuple[int, Parts]]:
    return zip(rows.offer.tolist(), rows.spread, strict=True)


def _within_zone_share(rows: _Rows, limits: Limits) -> Mask:
    """At most max(1, ⌊share · n⌋) nodes of a gang in one zone: a lone node is in one zone anyhow."""
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


def _apply(
    rows: _Rows, offers: tuple[Offer, ...], filters: list[tuple[str, str, Mask]]
) -> tuple[_Rows, tuple[Rejection, ...]]:
    """Rows that pass every filter; an offer is refused by the one that took its last row."""
    rejections: list[Rejection] = []
    present = _mentioned(rows)
    for number in sorted(set(range(len(offers))) - present):
        reason = "no phase of the job allows a gang of this machine"
        rejections.append(Rejection(offers[number].pool, "gang_size", reason))
    masks = list(accumulate((mask for _, _, mask in filters), np.logical_and))
    for (code, reason, _), mask in zip(filters, masks, strict=True):
        left = _mentioned(rows.take(mask))
        for number in sorted(present - left):
            rejections.append(Rejection(offers[number].pool, code, reason))
        present = left
    return (rows.take(masks[-1]) if masks else rows), tuple(rejections)


def _mentioned(rows: _Rows) -> set[int]:
    spread = {number for parts in rows.spread for number, _ in parts}
    return (set(rows.offer.tolist()) | spread) - {-1}


def _gang_sum(rows: _Rows, per_node: Array) -> Array:
    """The sum of a per-node figure over each row's gang."""
    total = np.where(rows.offer >= 0, per_node[rows.offer] if len(per_node) else 0.0, 0.0)
    total = total * rows.nodes
    for row in np.flatnonzero(rows.offer < 0):
        total[row] = sum(per_node[number] * nodes for number, nodes in rows.spread[row])
    return total


def _table(
    offers: tuple[Offer, ...], rows: _Rows, request: PlanRequest, demand: Demand
) -> ConfigurationTable:
    powers = [request.powers[offer.pool] for offer in offers]
    hazards = [offer.hazard_per_hour for offer in offers]
    first = np.array([o if o >= 0 else spread[0][0] for o, spread in _pairs(rows)], dtype=np.int64)

    def column(values: Iterable[float]) -> Array:
        return np.fromiter(values, dtype=float)

    def gang(values: Iterable[float]) -> Array:
        return _gang_sum(rows, column(values))

    hazard = gang(0.0 if h is None else h.value for h in hazards)
    hazard_low = gang(0.0 if h is None else h.low for h in hazards)
    hazard_high = gang(0.0 if h is None else h.high for h in hazards)
    usd = gang(_price(offer) for offer in offers)
    busy_kw = gang(p.busy_w * p.pue / 1000 for p in powers)
    idle_kw = gang(p.idle_w * p.pue / 1000 for p in powers)
    carbon = column(math.nan if p.gco2e_per_kwh is None else p.gco2e_per_kwh for p in powers)
    speeds = _speeds(offers, rows, first, request, demand)
    running = np.array(
        [_is_running(offers, rows.parts(i), demand) for i in _candidates(rows, demand)] or [],
        dtype=bool,
    )
    is_running = np.zeros(len(rows.nodes), dtype=bool)
    is_running[_candidates(rows, demand)] = running
    if demand.measured_units_per_s is not None and demand.measured_units_per_s > 0:
        for values in speeds:
            values[is_running] = demand.measured_units_per_s
    speed, speed_low, speed_high = speeds
    interval = intervals_s(hazard, demand.job.checkpoint)
    availability, availability_low = _availability(offers, rows, first)

    restart_s, save_s = demand.job.overhead_s, demand.job.checkpoint.save_s
    paid = paid_per_useful(hazard, interval, save_s, restart_s)
    paid_units = 3600 * speed / paid
    idle_share = np.minimum(1.0, hazard * restart_s / 3600)
    kwh_per_hour = busy_kw * (1 - idle_share) + idle_kw * idle_share
    start_h = restart_s / 3600

    weight = quantile_weight(request.policy.risk.on_time)
    slow = np.maximum(towards(speed, speed_low, weight), speed * 1e-3)
    risky = np.maximum(towards(hazard, hazard_high, weight), 0.0)
    held = paid_per_useful(risky, interval, save_s, restart_s) * speed / slow / paid
    alone_h = np.maximum(demand.units / np.maximum(paid_units, 1e-300), 1e-9)
    spread_h = np.sqrt(risky * alone_h * loss_square_s2(interval, restart_s)) / 3600
    steady = np.clip(towards(availability, availability_low, weight), 1e-3, 1.0)
    stretch = (held + weight * spread_h / alone_h) / steady
    objective = request.policy.objective
    return ConfigurationTable(
        offers=offers,
        spread=rows.spread,
        offer=rows.offer,
        nodes=rows.nodes,
        gpus=rows.nodes
        * np.array([request.machines[offers[i].pool].gpu_count for i in first], dtype=np.int64),
        usd_per_hour=usd,
        busy_kw=busy_kw,
        idle_kw=idle_kw,
        gco2e_per_kwh=carbon[first] if len(first) else np.empty(0),
        power_error=column(p.relative_error for p in powers)[first] if len(first) else np.empty(0),
        hazard=hazard,
        hazard_low=hazard_low,
        hazard_high=hazard_high,
        speed=speed,
        speed_low=speed_low,
        speed_high=speed_high,
        interval_s=interval,
        availability=availability,
        interruptible=np.array(
            [offers[i].pool.capacity_type.interruptible for i in first], dtype=bool
        ),
        now=_startable(offers, rows, demand),
        running=is_running,
        paid_units_per_hour=paid_units,
        calendar=1 / np.clip(availability, 1e-3, 1.0),
        stretch=np.maximum(stretch, 1.0),
        score_per_hour=_score(objective, usd, kwh_per_hour, carbon, first),
        usd_per_start=usd * start_h,
        kwh_per_hour=kwh_per_hour,
        kwh_per_start=idle_kw * start_h,
        start_score=_score(objective, usd * start_h, idle_kw * start_h, carbon, first),
    )


def _score(
    objective: Objective, usd: Array, kwh: Array, carbon: Array, first: NDArray[np.int64]
) -> Array:
    grams = np.zeros(len(usd))
    if objective.usd_per_tonne_co2e > 0 and len(first):
        grams = kwh * carbon[first]
    return (
        objective.usd * usd
        + objective.usd_per_kwh * kwh
        + (objective.usd_per_tonne_co2e * grams / 1e6)
    )


def _speeds(
    offers: tuple[Offer, ...],
    rows: _Rows,
    first: NDArray[np.int64],
    request: PlanRequest,
    demand: Demand,
) -> tuple[Array, Array, Array]:
    known: dict[tuple[InstanceType, int], tuple[float, float, float]] = {}
    found = np.zeros((3, len(rows.nodes)))
    machines = [request.machines[offer.pool] for offer in offers]
    for row, (number, nodes) in enumerate(zip(first.tolist(), rows.nodes.tolist(), strict=True)):
        key = (machines[number], nodes)
        if key not in known:
            speed = demand.job.gang_units_per_s(*key)
            known[key] = (0.0, 0.0, 0.0) if speed is None else (speed.value, speed.low, speed.high)
        found[:, row] = known[key]
    return found[0], found[1], found[2]


def _availability(
    offers: tuple[Offer, ...], rows: _Rows, first: NDArray[np.int64]
) -> tuple[Array, Array]:
    """The share of time with capacity: of the scarcest zone; 1 where nothing is known."""
    value = np.array([1.0 if o.availability is None else o.availability.value for o in offers])
    low = np.array([1.0 if o.availability is None else o.availability.low for o in offers])
    if not len(first):
        return np.empty(0), np.empty(0)
    out, out_low = value[first], low[first]
    for row in np.flatnonzero(rows.offer < 0):
        members = [number for number, _ in rows.spread[row]]
        out[row], out_low[row] = value[members].min(), low[members].min()
    return out, out_low


def _candidates(rows: _Rows, demand: Demand) -> NDArray[np.int64]:
    """Rows with as many nodes as the living gang."""
    return np.flatnonzero(rows.nodes == sum(demand.running.values()))


def _is_running(offers: tuple[Offer, ...], parts: Parts, demand: Demand) -> bool:
    held: Mapping[Pool, int] = {offers[number].pool: nodes for number, nodes in parts}
    return held == dict(demand.running)


def _startable(offers: tuple[Offer, ...], rows: _Rows, demand: Demand) -> Mask:
    """Whether what is available at present, with the nodes that the job has, fits the gang."""
    room = np.array(
        [
            math.inf
            if o.nodes_available is None
            else o.nodes_available + demand.running.get(o.pool, 0)
            for o in offers
        ]
    )
    fits = np.zeros(len(rows.nodes), dtype=bool)
    plain = rows.offer >= 0
    fits[plain] = rows.nodes[plain] <= room[rows.offer[plain]]
    for row in np.flatnonzero(~plain):
        fits[row] = all(nodes <= room[number] for number, nodes in rows.spread[row])
    return fits
