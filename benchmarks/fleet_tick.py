"""The request that a controller would make one tick after a plan that came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.fleet import Node, NodeState
from costopt.domain.market import Offer
from costopt.domain.plan import Allocation, Plan
from costopt.domain.power import NodePower
from costopt.domain.progress import GangState, Progress
from costopt.domain.view import JobView
from costopt.optimize.request import PlanRequest


def after_tick(request: PlanRequest, plan: Plan, tick_s: float) -> PlanRequest:
    """``request`` moved on by ``tick_s``: gangs run as planned, nothing was interrupted.

    Prices are those forecast for the new instant; what a pool has is what it had, less the nodes
    launched there.
    """
    now = request.now + timedelta(seconds=tick_s)
    views = tuple(_moved_on(request, view, plan, now) for view in request.jobs)
    living = [node.pool for view in views for node in view.nodes]
    return replace(
        request,
        now=now,
        jobs=views,
        offers=tuple(
            _offer_at(request, offer, living.count(offer.pool), now) for offer in request.offers
        ),
    )


def _moved_on(request: PlanRequest, view: JobView, plan: Plan, now: datetime) -> JobView:
    own = [a for a in plan.allocations if a.job == view.job.name and a.start_at < now]
    gang = [a for a in own if a.end_at > now]
    done = sum(_units(request, view, group, now) for group in _gangs(own))
    done = min(done, view.job.work.amount * 0.999)
    if not gang:
        return replace(view, progress=Progress(done, done))
    starting_until = max(a.start_at for a in gang) + timedelta(seconds=view.job.overhead_s)
    training = starting_until <= now
    return replace(
        view,
        progress=Progress(
            done,
            done,
            GangState.TRAINING if training else GangState.STARTING,
            generation=1,
            starting_until=None if training else starting_until,
        ),
        nodes=tuple(
            _node(request, allocation, number)
            for allocation in gang
            for number in range(allocation.nodes)
        ),
    )


def _gangs(allocations: Sequence[Allocation]) -> list[list[Allocation]]:
    """Allocations of the same time are one gang over several zones."""
    found: dict[datetime, list[Allocation]] = {}
    for allocation in allocations:
        found.setdefault(allocation.start_at, []).append(allocation)
    return list(found.values())


def _units(request: PlanRequest, view: JobView, gang: Sequence[Allocation], now: datetime) -> float:
    first = gang[0]
    speed = view.job.gang_units_per_s(request.machines[first.pool], sum(a.nodes for a in gang))
    if speed is None:
        return 0.0
    held_s = (min(first.end_at, now) - first.start_at).total_seconds()
    kept = _cap_speed(request.powers[first.pool], first.power_cap_w)
    return speed.value * kept * max(0.0, held_s - view.job.overhead_s)


def _cap_speed(power: NodePower, cap_w: float | None) -> float:
    return next((cap.speed for cap in power.caps if cap.cap_w == cap_w), 1.0)


def _node(request: PlanRequest, allocation: Allocation, number: int) -> Node:
    name = f"{allocation.job}-{allocation.pool}-{number}"
    price = next(o.price_usd_per_hour for o in request.offers if o.pool == allocation.pool)
    return Node(
        name,
        "fleet",
        allocation.job,
        allocation.pool,
        name,
        NodeState.RUNNING,
        allocation.start_at,
        price.value if price is not None else 0.0,
    )


def _offer_at(request: PlanRequest, offer: Offer, launched: int, now: datetime) -> Offer:
    price, forecast = offer.price_usd_per_hour, request.price_forecasts.get(offer.pool)
    if price is not None and forecast is not None:
        value = forecast.value(now)
        price = replace(price, value=value, low=value, high=value, observed_at=now)
    left = offer.nodes_available
    return replace(
        offer,
        price_usd_per_hour=price,
        nodes_available=None if left is None else max(0, left - launched),
    )
