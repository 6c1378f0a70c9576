"""What-if: scenarios over policies, deadlines and terms."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from costopt.domain.account import UNLIMITED
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import CapacityType
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Objective, Policy
from costopt.planning.quotes import resolve_quotes
from costopt.planning.what_if import non_dominated_scenarios, plan_scenarios
from costopt.spec import load_job

JOB = Path(__file__).parents[3] / "examples/finetune/job.yaml"
REGIONS = ("us-east-1", "eu-north-1")


def test_scenarios_cross_every_axis() -> None:
    seen = resolve_quotes(None, None)
    job = load_job(JOB, seen.now)
    jobs = [replace(job, deadline_at=seen.now + timedelta(hours=hours)) for hours in (1, 14)]
    limits = Limits(regions=REGIONS)
    cheap = Policy("cheap", limits=limits)
    green = Policy("green", objective=Objective(usd_per_tonne_co2e=1e5), limits=limits)
    safe = replace(cheap, limits=replace(limits, capacity_types=(CapacityType.ON_DEMAND,)))
    found = plan_scenarios(jobs, (cheap, green, safe), ("spot", "on_demand"), seen, UNLIMITED)
    keys = [(each.policy, each.job.deadline_at, each.terms) for each in found]
    assert keys == [
        (policy, each.deadline_at, terms)
        for policy in (cheap, green, safe)
        for each in jobs
        for terms in ("spot", "on_demand")
    ]
    late, _, spot, on_demand, _, _, clean, _, refused, *_ = found
    assert late.plan is not None
    assert late.plan.status is PlanStatus.INFEASIBLE
    assert late.forecast is None
    assert late.why_not == late.plan.binding
    assert refused.plan is None
    assert not refused.stale
    assert spot.forecast is not None
    assert on_demand.forecast is not None
    assert clean.forecast is not None
    assert spot.forecast.usd_mean < on_demand.forecast.usd_mean
    assert (clean.forecast.gco2e or 0) < (spot.forecast.gco2e or 0)
    best = set(non_dominated_scenarios(found))
    assert found.index(spot) in best
    assert found.index(clean) not in best


def test_prices_that_are_too_old_are_reported_by_scenario() -> None:
    seen = resolve_quotes(None, None)
    old = Estimate.exact(1.0, Basis.MEASURED, "test", seen.now - timedelta(hours=2))
    offers = tuple(replace(each, price_usd_per_hour=old) for each in seen.offers)
    job = load_job(JOB, seen.now)
    stale = replace(seen, offers=offers, age_limit=None)
    (scenario,) = plan_scenarios((job,), (Policy("p"),), ("policy",), stale, UNLIMITED)
    assert scenario.stale
    assert scenario.forecast is None
    assert scenario.why_not
