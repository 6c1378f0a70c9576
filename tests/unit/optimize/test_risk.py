"""Forecasts: their draws, a simulation event by event, and the fallback that keeps the deadline."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import numpy as np
import pytest

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, Offer
from costopt.domain.policy import Limits, Policy, Risk
from costopt.optimize import chance_constraint, random_draws
from costopt.optimize.planner import plan, prepare
from costopt.optimize.random_draws import EXACT_MEAN, draw_randoms, gamma_quantile, poisson_quantile
from costopt.optimize.request import PlanRequest
from costopt.optimize.simulation import forecast_rows, forecast_segments
from costopt.optimize.solve import single_configuration_segments
from tests.support.known_figure import known
from tests.support.optimize_fixtures import NOW, job, offer, plan_request, pool


def request(offers: list[Offer], what: Job, policy: Policy) -> PlanRequest:
    return plan_request(offers, what, policy=policy)


def simulated_h(rng: random.Random, hazard: float, what: Job, every_s: float) -> float:
    """Hours until the work is done, one interruption after the other."""
    spent_s, done_s, work_s = what.startup_s, 0.0, what.work.amount
    while done_s < work_s - 1e-6:
        need_s = min(every_s, work_s - done_s) + what.checkpoint.save_s
        alive_s = rng.expovariate(hazard / 3600)
        while alive_s < need_s:
            spent_s += alive_s + what.overhead_s
            alive_s = rng.expovariate(hazard / 3600)
        spent_s += need_s
        done_s += min(every_s, work_s - done_s)
    return spent_s / 3600


@pytest.mark.parametrize("hazard", [0.02, 0.2, 1.0])
def test_the_forecast_is_that_of_a_simulation(hazard: float) -> None:
    what = job(20, deadline_h=100)
    wanted = request([offer(pool(), 2.0, hazard=hazard)], what, Policy("p"))
    ((part,), _) = prepare(wanted)
    (forecast,) = forecast_rows(part.table, np.array([0]), part.demand, NOW)
    rng = random.Random(3)
    every_s = float(part.table.interval_s[0])
    runs = np.array([simulated_h(rng, hazard, what, every_s) for _ in range(600)])
    p50_h = (forecast.finish_p50_at - NOW).total_seconds() / 3600
    p95_h = (forecast.finish_p95_at - NOW).total_seconds() / 3600
    assert p50_h == pytest.approx(float(np.median(runs)), rel=0.02)
    assert p95_h == pytest.approx(float(np.quantile(runs, 0.95)), rel=0.04)
    assert forecast.usd_p50 == pytest.approx(2.0 * p50_h, rel=1e-6)
    assert forecast.expected_interruptions == pytest.approx(hazard * runs.mean(), rel=0.15)
    assert known(forecast.kwh_low) < known(forecast.kwh) < known(forecast.kwh_high)


def test_spot_alone_may_be_late_and_on_demand_behind_it_is_not() -> None:
    what = job(20, deadline_h=23)
    shaky = offer(pool("a"), 1.0, hazard=1.0)
    safe = offer(pool("b", kind=CapacityType.ON_DEMAND), 6.0)
    policy = Policy("p", risk=Risk(0.95, 0.0))

    def forecast_of_spot(offers: list[Offer]) -> tuple[Estimate, float]:
        ((part,), _) = prepare(request(offers, what, policy))
        forecast = forecast_rows(part.table, np.array([0]), part.demand, NOW)[0]
        return forecast.on_time, forecast.usd_p95

    alone, alone_usd = forecast_of_spot([shaky])
    backed, backed_usd = forecast_of_spot([shaky, safe])
    assert alone.value < 0.9
    assert 0.99 < backed.value < backed.high == 1.0
    assert backed_usd > alone_usd


def test_a_plan_is_as_sure_as_the_policy_asks() -> None:
    what = job(20, deadline_h=26)
    offers = [
        offer(pool("a"), 1.0, hazard=0.5, hazard_high=1.0),
        offer(pool("b"), 3.0, hazard=0.01),
    ]
    policy = Policy("p", risk=Risk(0.95, 0.0), limits=Limits(capacity_types=(CapacityType.SPOT,)))
    made = plan(request(offers, what, policy))
    assert made.forecasts[0][1].on_time.value >= 0.94
    assert max(a.end_at for a in made.allocations) <= NOW + timedelta(hours=26)


def test_a_fallback_is_cheaper_than_a_margin_bought_in_advance() -> None:
    shaky = offer(pool("a"), 1.0, hazard=0.2, hazard_high=0.8)
    safe = offer(pool("b", kind=CapacityType.ON_DEMAND), 6.0)
    what = job(20, deadline_h=23)
    wanted = request([shaky, safe], what, Policy("p", risk=Risk(0.95, 0.0)))
    with patch.object(chance_constraint, "MARGIN_SHARES", ()):
        held = plan(wanted, explain=False)
    made = plan(wanted, explain=False)
    assert safe.pool in {a.pool for a in held.allocations}
    assert {a.pool for a in made.allocations} == {shaky.pool}
    assert made.forecasts[0][1].on_time.value >= 0.95
    assert made.forecasts[0][1].usd_p50 < held.forecasts[0][1].usd_p50


@pytest.mark.parametrize("hazard", [0.02, 0.2])
def test_a_plan_that_differs_by_a_hair_has_the_same_figures(hazard: float) -> None:
    """Whatever of it differs, each run has the same luck."""
    spot = [offer(pool(zone), 1.0, hazard=hazard, hazard_high=2 * hazard) for zone in "ab"]
    policy = Policy("p", limits=Limits(capacity_types=(CapacityType.SPOT,)))
    ((part,), _) = prepare(request(spot, job(20, deadline_h=96), policy))
    (whole,) = single_configuration_segments(part, 0)
    halves = [replace(whole, hours=whole.hours / 2) for _ in range(2)]
    for plan_made in ([whole], halves):
        kwh = [
            forecast_segments(
                part.table,
                [replace(s, hours=s.hours * stretch) for s in plan_made],
                part.demand,
                NOW,
            )[0].kwh
            for stretch in (1.0, 1 + 1e-9, 1 - 1e-7)
        ]
        assert kwh == pytest.approx([kwh[0]] * 3, rel=1e-5)


def test_candidates_that_are_alike_have_the_same_figures() -> None:
    spot = [offer(pool(zone), 1.0, hazard=0.2) for zone in "abc"]
    made = plan(request(spot, job(20, deadline_h=96), Policy("p")))
    rejected = [c.forecast for c in made.candidates if not c.chosen]
    assert len(rejected) == 2
    assert rejected[0] == rejected[1]


@pytest.mark.parametrize("hazard", [0.0, 0.3])
def test_no_simulated_probability_is_certain(hazard: float) -> None:
    offers = [
        offer(pool("a"), 1.0, hazard=hazard),
        offer(pool("b", kind=CapacityType.ON_DEMAND), 6.0),
    ]
    made = plan(request(offers, job(20, deadline_h=96), Policy("p")))
    for forecast in (*(c.forecast for c in made.candidates), made.forecasts[0][1]):
        assert 0 < forecast.on_time.value < 1
        assert forecast.on_time.low < forecast.on_time.high
    (safe,) = (c.forecast for c in made.candidates if c.pool == offers[1].pool)
    assert (safe.falls_back.low, safe.falls_back.high) == (0.0, 0.0)


def test_the_stated_noise_covers_what_other_draws_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shaky = [offer(pool("a"), 1.0, hazard=0.3, hazard_high=0.9)]
    found = []
    for seed in range(12):
        monkeypatch.setattr("costopt.optimize.random_draws.SEED", seed)
        random_draws.permuted_grid.cache_clear()
        made = plan(request(shaky, job(20, deadline_h=96), Policy("p")), explain=False)
        found.append(made.forecasts[0][1])
    random_draws.permuted_grid.cache_clear()
    assert len({f.kwh for f in found}) == len(found)
    for one in found:
        assert np.std([f.usd_p50 for f in found]) < one.usd_error < 0.05 * one.usd_p50
        assert np.std([known(f.kwh) for f in found]) < known(one.kwh_error) < 0.05 * known(one.kwh)


@pytest.mark.parametrize("measured", [False, True])
def test_spot_whose_capacity_was_not_measured_is_never_nearly_certain(measured: bool) -> None:
    seen = Estimate(0.99, 0.98, 1.0, Basis.MEASURED, "made up") if measured else None
    spot = replace(offer(pool(), 1.0), availability=seen)
    uninterruptible = offer(pool(kind=CapacityType.ON_DEMAND), 5.0)
    only_spot = Policy("p", limits=Limits(capacity_types=(CapacityType.SPOT,)))
    alone = plan(request([spot], job(4, deadline_h=40), only_spot)).forecasts[0][1].on_time
    assert alone.value > 0.99
    assert (alone.low > 0.9) == measured
    assert (alone.basis is Basis.PRIOR) != measured
    # Where on-demand can replace it, the deadline does not rest on it.
    held = (
        plan(request([spot, uninterruptible], job(4, deadline_h=40), Policy("p")))
        .forecasts[0][1]
        .on_time
    )
    assert held.low > 0.9


SAMPLES = 4000


@pytest.mark.parametrize("mean", [0.0, 1e-3, 0.4, 3.0, 40.0, EXACT_MEAN, 200.0, 1e6])
def test_counts_have_the_mean_and_the_variance_of_a_poisson_distribution(mean: float) -> None:
    counts = poisson_quantile(np.full(SAMPLES, mean), draw_randoms(SAMPLES).events[0])
    assert (counts >= 0).all()
    assert (counts == np.rint(counts)).all()
    assert float(counts.mean()) == pytest.approx(mean, rel=0.01, abs=0.3 / SAMPLES)
    assert float(counts.var()) == pytest.approx(mean, rel=0.03, abs=0.5 / SAMPLES)


def test_counts_are_exact_quantiles_where_they_are_few() -> None:
    mean, middle = np.array([1.0]), np.array([0.5])
    assert math.exp(-1) < 0.5 < 2 * math.exp(-1)
    assert poisson_quantile(mean, middle).tolist() == [1.0]


def test_more_hazard_is_never_fewer_interruptions_in_the_same_run() -> None:
    chances = draw_randoms(SAMPLES).events
    means = np.geomspace(1e-3, 2 * EXACT_MEAN, 60)[:, None]
    counts = poisson_quantile(means, chances)
    assert (np.diff(counts, axis=0) >= 0).all()


@pytest.mark.parametrize("shape", [1.0, 2.0, 30.0])
def test_waits_have_the_mean_and_the_variance_of_a_gamma_distribution(shape: float) -> None:
    waits = gamma_quantile(np.full(SAMPLES, shape), draw_randoms(SAMPLES).waits[0])
    assert float(waits.mean()) == pytest.approx(shape, rel=0.01)
    assert float(waits.var()) == pytest.approx(shape, rel=0.1)
    assert gamma_quantile(np.zeros(1), np.array([2.0])).tolist() == [0.0]


def test_runs_have_draws_of_their_own_that_stay_the_same() -> None:
    three, one = draw_randoms(SAMPLES, range(3)), draw_randoms(SAMPLES, [1])
    assert three.events.shape == (3, SAMPLES)
    assert (three.events[1] == one.events[0]).all()
    assert (three.events[0] != three.events[1]).any()
    assert (three.speed == one.speed).all()
    for other in (three.hazard, three.loss, three.events[0], three.waits[0]):
        assert abs(float(np.corrcoef(three.speed, other)[0, 1])) < 0.06
