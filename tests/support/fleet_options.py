"""What each job may run, and what it does and costs in each hour, written out for the oracles.

Only the formulas of ``costopt.optimize.rates``, which have tests of their own, are shared with the
planner. There are no margins: the policy's on-time probability must be 0.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from costopt.domain.checkpoint_interval import explained_interval
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.view import JobView
from costopt.optimize.rates import paid_to_useful_ratio
from costopt.optimize.request import PlanRequest, Quota

Parts = tuple[tuple[Pool, int], ...]
"""(pool, nodes) of a gang: one pool, or the zones of an even spread."""

BELIEF_H = 1.0
"""``nodes_available`` holds in the first hour."""


@dataclass(frozen=True)
class Stage:
    """Units of work on a gang of min to max nodes."""

    units: float
    min_nodes: int
    max_nodes: int


@dataclass(frozen=True)
class Choice:
    """A gang under a power cap; ``units_per_h`` and ``kwh_per_h`` are of a paid hour."""

    parts: Parts
    cap_w: float | None
    units_per_h: float
    kwh_per_h: float
    idle_kw: float
    start_h: float
    start_usd: float
    moving_usd_per_h: float

    @property
    def nodes(self) -> int:
        """Of the whole gang."""
        return sum(nodes for _, nodes in self.parts)

    def usd_per_h(self, request: PlanRequest, at_h: float) -> float:
        """The nodes' price and what saving elsewhere costs, at an instant in hours from now."""
        return self.rent_usd_per_h(request, at_h) + self.moving_usd_per_h

    def rent_usd_per_h(self, request: PlanRequest, at_h: float) -> float:
        """The nodes' price at an instant in hours from now."""
        return sum(nodes * price_usd_per_h(request, pool, at_h) for pool, nodes in self.parts)

    def score_per_h(self, request: PlanRequest, at_h: float) -> float:
        """The objective of a paid hour."""
        usd = self.usd_per_h(request, at_h)
        return score(request, usd, self.kwh_per_h, self.parts[0][0], at_h)

    def starting_score_per_h(self, request: PlanRequest, at_h: float) -> float:
        """The objective of an hour of a start, without the transfer's dollars."""
        usd = self.rent_usd_per_h(request, at_h)
        return score(request, usd, self.idle_kw, self.parts[0][0], at_h)

    def start_score(self, request: PlanRequest, at_h: float) -> float:
        """The objective of a start."""
        transfer = request.policy.objective.usd * self.start_usd
        return self.starting_score_per_h(request, at_h) * self.start_h + transfer


def price_usd_per_h(request: PlanRequest, pool: Pool, at_h: float) -> float:
    """Of one node: the forecast, else the present price."""
    if pool in request.price_forecasts:
        return request.price_forecasts[pool].value(request.now + timedelta(hours=at_h))
    (price,) = (o.price_usd_per_hour for o in request.offers if o.pool == pool)
    assert price is not None
    return price.value


def score(request: PlanRequest, usd: float, kwh: float, pool: Pool, at_h: float) -> float:
    """The policy's objective of dollars and of energy drawn at an instant."""
    region, objective = f"{pool.provider}/{pool.region}", request.policy.objective
    grams_per_kwh = request.powers[pool].gco2e_per_kwh or 0.0
    if region in request.carbon_forecasts:
        when = request.now + timedelta(hours=at_h)
        grams_per_kwh = request.carbon_forecasts[region].value(when)
    per_kwh = objective.usd_per_kwh + objective.usd_per_tonne_co2e * grams_per_kwh / 1e6
    return objective.usd * usd + per_kwh * kwh


def hours_from(request: PlanRequest, when: datetime) -> float:
    """An instant in hours from the request's now."""
    return (when - request.now).total_seconds() / 3600


def stages_of(job: Job) -> list[Stage]:
    """The job's phases with their gang sizes."""
    return [
        Stage(
            phase.share * job.work.amount,
            max(phase.min_nodes, job.resources.min_nodes),
            min(phase.max_nodes, job.resources.max_nodes),
        )
        for phase in job.phases
    ]


def choices_of(request: PlanRequest, job: Job) -> list[Choice]:
    """Every gang, alone within every quota, under no cap and under each."""
    found: list[Choice] = []
    for parts in _gangs(request, job):
        pool = parts[0][0]
        machine = request.machines[pool]
        if sum(n for _, n in parts) not in job.resources.node_counts(machine):
            continue
        if any(load(request, quota, parts) > most for quota, most in limits_of(request)):
            continue
        caps = request.powers[pool].caps if request.policy.limits.power_caps else ()
        caps_w = [None, *(cap.cap_w for cap in caps)]
        found.extend(choice_of(request, job, parts, cap_w) for cap_w in caps_w)
    return found


def choice_of(request: PlanRequest, job: Job, parts: Parts, cap_w: float | None) -> Choice:
    """The figures of one gang under one cap, from Daly's formula and the node's power."""
    offers = {offer.pool: offer for offer in request.offers}
    pool, nodes = parts[0][0], sum(n for _, n in parts)
    power, machine = request.powers[pool], request.machines[pool]
    cap = next((c for c in power.caps if c.cap_w == cap_w), None)
    hazard = sum(_hazard(offers[p]) for p, _ in parts)
    save_s, own_s = job.checkpoint.save_s, job.checkpoint.interval_s
    fetch_h, fetch_usd, save_usd = _transfer(request, job, pool)
    usd = sum(n * price.value for p, n in parts if (price := offers[p].price_usd_per_hour))
    paid_s = 3600 * save_usd / usd if usd else 0.0
    every_s = own_s or (
        explained_interval(hazard_per_hour=hazard, blocking_save_s=save_s, paid_s=paid_s).interval_s
    )
    start_h, restart_h = (s / 3600 + fetch_h for s in (job.startup_s, job.overhead_s))
    paid = paid_to_useful_ratio(np.array([hazard]), np.array([every_s]), save_s, 3600 * restart_h)[
        0
    ]
    idle_share = min(1.0, hazard * restart_h)
    speed = job.gang_units_per_s(machine, nodes)
    assert speed is not None
    busy_w = power.busy_w if cap is None else cap.busy_w
    busy_kw, idle_kw = (nodes * w * power.pue / 1000 for w in (busy_w, power.idle_w))
    return Choice(
        parts,
        cap_w,
        3600 * speed.value * (1.0 if cap is None else cap.speed) / float(paid),
        busy_kw * (1 - idle_share) + idle_kw * idle_share,
        idle_kw,
        start_h,
        fetch_usd,
        hazard * fetch_usd + save_usd * 3600 / (every_s + save_s),
    )


def _gangs(request: PlanRequest, job: Job) -> Iterator[Parts]:
    """Every pool at every size; where a pool's room is known, also even spreads over zones."""
    offers = [o for o in request.offers if o.price_usd_per_hour is not None]
    sizes = range(job.resources.min_nodes, job.resources.max_nodes + 1)
    for offer in offers:
        yield from (((offer.pool, n),) for n in sizes)
    if all(o.nodes_available is None for o in offers):
        return
    key = _terms
    for _, group in itertools.groupby(sorted(offers, key=key), key=key):
        zones = sorted(group, key=lambda o: (price_usd_per_h(request, o.pool, 0.0), o.pool))
        for count in range(2, len(zones) + 1):
            for n in sizes:
                each, over = divmod(n, count)
                if each:
                    yield tuple((zones[z].pool, each + (z < over)) for z in range(count))


def _terms(offer: Offer) -> tuple[str, ...]:
    pool = offer.pool
    return pool.provider, pool.region, pool.instance_type, pool.capacity_type.value


def _hazard(offer: Offer) -> float:
    return 0.0 if offer.hazard_per_hour is None else offer.hazard_per_hour.value


def _transfer(request: PlanRequest, job: Job, pool: Pool) -> tuple[float, float, float]:
    """Hours and dollars of a start's transfer, dollars of a save's."""
    here, hours, usd, save_usd = f"{pool.provider}/{pool.region}", 0.0, 0.0, 0.0
    stored = [(job.checkpoint.region, job.checkpoint.size_gib, True)]
    if job.data is not None:
        stored.append((job.data.region, job.data.size_gib, False))
    for region, size_gib, saved in stored:
        if region in (None, here) or not size_gib:
            continue
        assert region is not None
        transfer = request.transfers[region, here]
        usd += size_gib * transfer.usd_per_gib
        gbps = min(g for g in (transfer.gbps, request.machines[pool].network_gbps) if g)
        hours += size_gib * 2**30 * 8 / 1e9 / gbps / 3600
        save_usd += size_gib * request.transfers[here, region].usd_per_gib if saved else 0.0
    return hours, usd, save_usd


Limit = tuple[Quota, float]


def limits_of(request: PlanRequest) -> list[Limit]:
    """Quotas on GPUs or nodes, each with its most; the policy's nodes as a quota on all."""
    found: list[Limit] = []
    for quota in request.quotas:
        most = quota.max_gpus if quota.max_gpus is not None else quota.max_nodes
        if most is not None:
            found.append((quota, float(most)))
    if request.policy.limits.max_nodes is not None:
        most = request.policy.limits.max_nodes
        found.append((Quota("policy", max_nodes=most), float(most)))
    return found


def load(request: PlanRequest, quota: Quota, parts: Parts) -> float:
    """What a gang counts against a quota: GPUs where the quota limits those, else nodes."""
    total = 0.0
    for pool, nodes in parts:
        machine = request.machines[pool]
        if quota.matches(pool, machine):
            total += nodes * (machine.gpu_count if quota.max_gpus is not None else 1)
    return total


def living_of(view: JobView) -> Parts:
    """The job's gang of now, () where there is none."""
    return tuple(sorted(Counter(node.pool for node in view.nodes).items()))


def launched(parts: Parts, living: Parts) -> dict[Pool, int]:
    """Nodes of a gang by pool that are not among the living ones."""
    there = dict(living)
    return {pool: max(0, nodes - there.get(pool, 0)) for pool, nodes in parts}


def fits_room(request: PlanRequest, parts: Parts, living: Parts, at_h: float) -> bool:
    """Whether the gang alone fits what its pools have, as far as that is believed."""
    if at_h >= BELIEF_H:
        return True
    room = {offer.pool: offer.nodes_available for offer in request.offers}
    return all(
        nodes <= (math.inf if room[pool] is None else room[pool] or 0)
        for pool, nodes in launched(parts, living).items()
    )


def edges_of(request: PlanRequest) -> Sequence[float]:
    """Slot edges in hours: every hour, every release and every due time of a job."""
    times = {BELIEF_H}
    for view in request.jobs:
        begin, due = window_of(request, view.job)
        times |= {begin, due, *(float(h) for h in range(math.ceil(begin), math.floor(due) + 1))}
    return sorted(times)


def window_of(request: PlanRequest, job: Job) -> tuple[float, float]:
    """Release and due time in hours from now, the policy's reserve taken off."""
    reserve_h = request.policy.risk.reserve_s / 3600
    return max(0.0, hours_from(request, job.start_at)), hours_from(
        request, job.until_at
    ) - reserve_h
