"""A pool enters the plan just below the price that is told for it, and not above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from costopt.domain.estimate import Estimate
from costopt.domain.job import Job, Resources
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.plan import Plan
from costopt.domain.policy import Objective, Policy, Risk
from costopt.domain.power import NodePower
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.optimize_fixtures import NOW, job, machine, machines_of, offer, pool, power

SURE = Risk(on_time=0.5, reserve_s=0.0)
NEAR = 2e-3
"""Prices are tried this share below and above."""


def made_of(
    offers: Sequence[Offer], what: Job, objective: Objective, powers: dict[Pool, NodePower]
) -> Plan:
    slow = machine("T4", name="slow")
    machines = {
        o.pool: slow if o.pool.instance_type == "slow" else machine() for o in offers
    } or machines_of(offers)
    policy = Policy("p", objective=objective, risk=SURE)
    view = JobView(what, Progress())
    return plan(PlanRequest(NOW, (view,), tuple(offers), machines, powers, policy))


def at_price(offers: Sequence[Offer], where: Pool, usd_per_hour: float) -> list[Offer]:
    def priced(one: Offer) -> Offer:
        known = one.price_usd_per_hour
        assert known is not None
        exact = Estimate.exact(usd_per_hour, known.basis, known.source, known.observed_at)
        return replace(one, price_usd_per_hour=exact) if one.pool == where else one

    return [priced(one) for one in offers]


def cases() -> list[tuple[list[Offer], Job, Objective]]:
    """Calm pools of two speeds, alone and in mixes, for dollars and for energy."""
    rng = np.random.default_rng(7)
    found = []
    for number in range(12):
        offers = [
            offer(pool(zone, name="slow" if zone in "de" else "gpu.large"), float(usd))
            for zone, usd in zip("abcde", rng.uniform(1.0, 4.0, 5), strict=True)
        ]
        what = job(
            20.0,
            deadline_h=float(rng.uniform(12, 45)),
            resources=Resources(max_nodes=2),
            points=(("A100", 8, 1.0), ("T4", 8, 0.55)),
        )
        found.append((offers, what, Objective(usd_per_kwh=0.0 if number % 2 else 0.2)))
    return found


@pytest.mark.parametrize(("offers", "what", "objective"), cases())
def test_a_pool_enters_below_the_price_that_is_reported(
    offers: list[Offer], what: Job, objective: Objective
) -> None:
    powers = {o.pool: power(3000.0 + 800 * i) for i, o in enumerate(offers)}
    made = made_of(offers, what, objective, powers)
    reported = [
        (c.pool, c.rejection.enters_below_usd_per_hour)
        for c in made.candidates
        if c.rejection is not None and c.rejection.enters_below_usd_per_hour is not None
    ]
    assert reported
    for where, usd_per_hour in reported:
        under = made_of(at_price(offers, where, usd_per_hour * (1 - NEAR)), what, objective, powers)
        over = made_of(at_price(offers, where, usd_per_hour * (1 + NEAR)), what, objective, powers)
        assert where in {a.pool for a in under.allocations}, (where, usd_per_hour)
        assert where not in {a.pool for a in over.allocations}, (where, usd_per_hour)


def test_a_pool_that_could_be_part_of_a_mix_enters_at_a_higher_price_than_alone() -> None:
    """The deadline asks for the fast pool half of the time: a second fast one competes for that."""
    offers = [
        offer(pool("a", name="slow"), 0.5),
        offer(pool("b"), 3.0, hazard=0.0),
        offer(pool("c", kind=CapacityType.ON_DEMAND), 6.0),
    ]
    what = job(20.0, deadline_h=25.0, points=(("A100", 8, 1.0), ("T4", 8, 0.55)))
    powers = {o.pool: power() for o in offers}
    made = made_of(offers, what, Objective(), powers)
    assert {a.pool for a in made.allocations} == {offers[0].pool, offers[1].pool}
    expensive = next(c for c in made.candidates if c.pool == offers[2].pool)
    assert expensive.rejection is not None
    assert expensive.rejection.enters_below_usd_per_hour == pytest.approx(3.0, rel=1e-3)
