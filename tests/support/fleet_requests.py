"""Small random planning problems whose prices, carbon and capacity move by the hour."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta

from hypothesis import strategies as st

from costopt.domain.estimate import Series
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Budget, DataLocation, Job, Phase, Resources
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.policy import Limits, Objective, Policy, Risk
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.progress import GangState, Progress
from costopt.domain.transfers import Transfer
from costopt.domain.view import JobView
from costopt.optimize.request import PlanRequest, Quota
from tests.support.optimize_fixtures import NOW, job, machine, offer, pool, power

CAPS = (PowerCap(200.0, 0.8, 2600.0, "made up"), PowerCap(300.0, 0.95, 3300.0, "made up"))
MODELS = ("A100-SXM4-40GB", "H100-SXM5-80GB")
POINTS = (("A100", 8, 1.0), ("H100", 8, 2.2))
ALL_POINTS = tuple((gpu, 8 * n, speed * n**0.85) for gpu, _, speed in POINTS for n in (1, 2, 3))
"""Measured at every size: nothing about the speeds is uncertain."""


@dataclass(frozen=True)
class Shape:
    """What a problem has; what is False or None is left out."""

    pools: int = 2
    hours: int = 4
    jobs: int = 1
    max_nodes: int = 2
    moving: bool = True
    caps: bool = False
    phases: bool = False
    rooms: bool = False
    transfers: bool = False
    budget: bool = False
    quota_gpus: int | None = None
    ragged: bool = False
    living: bool = False
    on_demand: bool = False
    certain: bool = False


def small_request(rng: random.Random, shape: Shape) -> PlanRequest:
    """A problem of this shape; whether there is a plan at all is left to chance, mostly there is.

    Every pool lies in a region of its own unless rooms are bounded, where zones make spreads.
    """
    pools = [_pool(number, shape) for number in range(shape.pools)]
    offers = tuple(_offer(rng, one, shape) for one in pools)
    regions = sorted({f"{one.provider}/{one.region}" for one in pools})
    stored = regions[0]
    return PlanRequest(
        now=NOW,
        jobs=tuple(
            _view(rng, _job(rng, number, shape, stored), pools, shape)
            for number in range(shape.jobs)
        ),
        offers=offers,
        machines={
            one: machine(MODELS[number % 2], name=one.instance_type)
            for number, one in enumerate(pools)
        },
        powers={one: _power(rng, shape) for one in pools},
        policy=Policy(
            "p",
            Objective(1.0, rng.choice((0.0, 0.1, 1.0)), rng.choice((0.0, 100.0, 2000.0))),
            Risk(on_time=0.0, reserve_s=0.0),
            limits=Limits(power_caps=shape.caps),
        ),
        quotas=() if shape.quota_gpus is None else (Quota("all", max_gpus=shape.quota_gpus),),
        slot_s=3600.0,
        price_forecasts=(
            {o.pool: _series(rng, _usd(o), shape.hours, 0.3, 2.0) for o in offers}
            if shape.moving
            else {}
        ),
        carbon_forecasts=(
            {region: _series(rng, 300.0, shape.hours, 0.2, 2.0) for region in regions}
            if shape.moving
            else {}
        ),
        transfers={
            (a, b): Transfer(rng.choice((0.0, 0.02, 0.1)), rng.choice((None, 5.0)), "made up")
            for a in regions
            for b in regions
            if shape.transfers and a != b
        },
    )


def _pool(number: int, shape: Shape) -> Pool:
    """The odd pools are of another GPU model, each pair in another zone or region."""
    pair, kind = divmod(number, 2)
    name = ("gpu.large", "gpu.huge")[kind]
    if shape.rooms:
        return pool("abcdef"[pair], name=name)
    last = shape.on_demand and number == shape.pools - 1
    terms = CapacityType.ON_DEMAND if last else CapacityType.SPOT
    return pool("a", name=name, region=f"r{pair}", kind=terms)


def _offer(rng: random.Random, where: Pool, shape: Shape) -> Offer:
    return offer(
        where,
        rng.uniform(1.0, 4.0) * (2.0 if where.instance_type == "gpu.huge" else 1.0),
        hazard=rng.choice((0.0, 0.01, 0.1, 0.4)) if not shape.certain else 0.0,
        available=rng.choice((None, 0, 1, 2)) if shape.rooms else None,
    )


def _usd(one: Offer) -> float:
    assert one.price_usd_per_hour is not None
    return one.price_usd_per_hour.value


def _series(rng: random.Random, first: float, hours: int, low: float, high: float) -> Series:
    """Begins at ``first``; from hour to hour it stays, falls or rises."""
    values = [first]
    for _ in range(hours - 1):
        values.append(values[-1] if rng.random() < 0.3 else first * rng.uniform(low, high))
    return Series(
        tuple(NOW + timedelta(hours=hour) for hour in range(hours)), tuple(values), "made up"
    )


def _power(rng: random.Random, shape: Shape) -> NodePower:
    drawn = power(rng.choice((3500.0, 4000.0)))
    return replace(drawn, caps=CAPS) if shape.caps else drawn


def _job(rng: random.Random, number: int, shape: Shape, stored: str) -> Job:
    due_h = shape.hours if rng.random() < 0.6 else rng.randint(max(1, shape.hours - 2), shape.hours)
    start_h = rng.choice((0, 0, 0, 1)) if due_h > 2 else 0
    ragged_h = rng.uniform(-0.4, 0.0) if shape.ragged else 0.0
    share = rng.uniform(0.15, 0.9) / shape.jobs**0.5
    made = job(
        max(0.05, share * (due_h - start_h) * 1.3 * shape.max_nodes**0.8),
        deadline_h=due_h + ragged_h,
        start_h=float(start_h),
        name=f"j{number}",
        resources=Resources(max_nodes=shape.max_nodes),
        points=ALL_POINTS if shape.certain else POINTS,
        startup_s=rng.choice((0.0, 120.0, 600.0)),
        save_s=rng.choice((2.0, 10.0)),
        budget=Budget(max_usd=rng.uniform(3.0, 20.0)) if shape.budget else None,
    )
    if shape.transfers:
        data = DataLocation("file:///data", rng.choice((0.0, 100.0)), stored)
        made = replace(made, data=data, checkpoint=replace(made.checkpoint, region=stored))
    return replace(made, phases=_phases(rng, shape))


def _view(rng: random.Random, what: Job, pools: list[Pool], shape: Shape) -> JobView:
    """Half the jobs of a shape with living gangs have one, if they began."""
    if not shape.living or what.start_at > NOW or rng.random() < 0.5:
        return JobView(what, Progress())
    where, size = rng.choice(pools), rng.randint(1, shape.max_nodes)
    nodes = tuple(
        Node(f"{what.name}-{n}", "me", what.name, where, "key", NodeState.RUNNING, NOW, 1.0)
        for n in range(size)
    )
    return JobView(what, Progress(state=GangState.TRAINING, generation=1), nodes)


def _phases(rng: random.Random, shape: Shape) -> tuple[Phase, ...]:
    most = shape.max_nodes
    if not shape.phases:
        return (Phase("train", 1.0, 1, most),)
    share = rng.uniform(0.2, 0.8)
    return (Phase("first", share, 1, most), Phase("then", 1 - share, most, most))


@st.composite
def lone_jobs(draw: st.DrawFn, *, caps: bool | None = None) -> PlanRequest:
    """One job with one phase, few choices and up to four hours: small enough to try everything."""
    capped = draw(st.booleans()) if caps is None else caps
    shape = Shape(
        pools=draw(st.integers(1, 2 if capped else 3)),
        hours=draw(st.integers(1, 4)),
        max_nodes=draw(st.integers(1, 2)),
        moving=draw(st.sampled_from((True, True, True, False))),
        caps=capped,
        rooms=draw(st.sampled_from((False, False, True))),
        transfers=draw(st.sampled_from((False, False, True))),
        ragged=draw(st.sampled_from((False, False, True))),
        living=draw(st.sampled_from((False, False, True))),
    )
    return small_request(random.Random(draw(st.integers(0, 2**32))), shape)


@st.composite
def frugal_jobs(draw: st.DrawFn) -> PlanRequest:
    """One or two jobs on spot and on-demand capacity of several regions, nothing uncertain."""
    jobs = draw(st.integers(1, 2))
    shape = Shape(
        pools=draw(st.integers(2, 4)),
        hours=draw(st.integers(2, 6)),
        jobs=jobs,
        max_nodes=draw(st.integers(1, 3)),
        caps=jobs == 1 and draw(st.booleans()),
        quota_gpus=draw(st.sampled_from((None, 16, 24))),
        on_demand=draw(st.booleans()),
        certain=True,
    )
    return small_request(random.Random(draw(st.integers(0, 2**32))), shape)


@st.composite
def staged_jobs(draw: st.DrawFn) -> PlanRequest:
    """One job with two phases, a budget, or both."""
    phases = draw(st.booleans())
    shape = Shape(
        pools=draw(st.integers(1, 3)),
        hours=draw(st.integers(2, 6)),
        max_nodes=2,
        phases=phases,
        budget=not phases or draw(st.booleans()),
        ragged=draw(st.booleans()),
    )
    return small_request(random.Random(draw(st.integers(0, 2**32))), shape)


@st.composite
def crowds(draw: st.DrawFn) -> PlanRequest:
    """Two or three jobs that share a quota and, at times, what pools have."""
    shape = Shape(
        pools=draw(st.integers(1, 3)),
        hours=draw(st.integers(2, 5)),
        jobs=draw(st.integers(2, 3)),
        max_nodes=2,
        rooms=draw(st.sampled_from((False, False, True))),
        quota_gpus=draw(st.sampled_from((8, 16, 24))),
        living=draw(st.sampled_from((False, False, True))),
    )
    return small_request(random.Random(draw(st.integers(0, 2**32))), shape)
