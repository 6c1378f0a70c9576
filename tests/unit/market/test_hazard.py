"""Hazards are learned from what is seen, with honest intervals."""

from __future__ import annotations

import math

import pytest

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Offer, Pool
from costopt.market.generator import generate_market
from costopt.market.hazard import LearnedHazard, gamma_interval, gamma_prior, gamma_probability
from costopt.market.statistics import history_statistics, pool_statistics
from tests.support.market_fixtures import (
    ELSEWHERE,
    ON_DEMAND,
    SPOT,
    T0,
    Sim,
    after,
    market,
    pool_history,
)

PRIOR = Estimate(0.1, 0.02, 0.3, Basis.PRIOR, "advisor bucket")


def offer(nodes: int | None, pool: Pool = SPOT) -> Offer:
    return Offer(pool, None, None, nodes)


def known(model: LearnedHazard, pool: Pool = SPOT) -> Estimate:
    estimate = model.hazard_per_hour(pool)
    assert estimate is not None
    return estimate


@pytest.mark.parametrize(
    ("shape", "low", "high"),
    [
        # Chi-squared tables: half the 5 % and 95 % quantiles with 2·shape degrees of freedom.
        (0.5, 0.00393 / 2, 3.84146 / 2),
        (1.0, 0.102587 / 2, 5.99146 / 2),
        (5.0, 3.94030 / 2, 18.3070 / 2),
        (50.0, 77.9295 / 2, 124.342 / 2),
    ],
)
def test_gamma_quantiles_are_those_of_the_tables(shape: float, low: float, high: float) -> None:
    assert gamma_interval(shape) == pytest.approx((low, high), rel=1e-3)


def test_large_shapes_agree_with_the_exact_distribution() -> None:
    low, high = gamma_interval(150.0)
    assert gamma_probability(150.0, low) == pytest.approx(0.05, abs=2e-4)
    assert gamma_probability(150.0, high) == pytest.approx(0.95, abs=2e-4)
    assert gamma_probability(2.0, 0.0) == 0.0
    assert gamma_probability(1.0, 2.0) == pytest.approx(1 - math.exp(-2))


def test_without_observation_the_prior_stands() -> None:
    model = LearnedHazard({SPOT: PRIOR})
    estimate = known(model)
    assert estimate.value == pytest.approx(0.1)
    assert (estimate.basis, estimate.source) == (Basis.PRIOR, "advisor bucket")
    assert estimate.low < 0.1 < estimate.high
    assert model.hazard_per_hour(ELSEWHERE) is None
    shape, rate_h = gamma_prior(PRIOR)
    assert shape / rate_h == pytest.approx(0.1)


def test_a_known_figure_is_not_learned_over() -> None:
    figure = Estimate.exact(0.2, Basis.LISTED, "the user")
    model = LearnedHazard(lambda _: figure)
    model.observe([offer(1)], T0)
    model.observe([offer(0)], after(60))
    model.record_interruption(SPOT, after(60))
    assert model.hazard_per_hour(SPOT) is figure


def test_time_up_and_losses_move_the_estimate() -> None:
    model = LearnedHazard({})
    assert model.hazard_per_hour(SPOT) is None
    for hour in range(101):
        model.observe([offer(1)], after(3600 * hour))
    quiet = known(model)
    assert quiet.value == pytest.approx(0.5 / 100)
    assert quiet.basis is Basis.MEASURED
    model.observe([offer(0)], after(3600 * 101))
    model.observe([offer(0)], after(3600 * 102))
    lost = known(model)
    assert lost.value == pytest.approx(1.5 / 101)
    assert lost.source.startswith("1 interruptions in ")
    assert lost.observed_at == after(3600 * 102)
    assert lost.low < lost.value < lost.high


def test_our_own_loss_and_the_pool_going_down_are_one_interruption() -> None:
    model = LearnedHazard({})
    model.observe([offer(0)], T0, running=[SPOT])
    model.record_interruption(SPOT, after(195))
    model.record_interruption(SPOT, after(195))
    model.observe([offer(0)], after(195))
    assert known(model).source.startswith("1 interruptions in ")
    assert known(model) is known(model)
    model.observe([offer(0)], after(390))
    assert known(model).source.startswith("1 interruptions in ")


def test_taking_the_last_node_is_not_an_interruption() -> None:
    model = LearnedHazard({})
    model.observe([offer(1)], T0)
    model.observe([offer(0)], after(600), running=[SPOT])
    model.observe([offer(1)], after(1200))
    estimate = known(model)
    assert estimate.source.startswith("0 interruptions in ")
    assert estimate.value == pytest.approx(0.5 / (1200 / 3600))


def test_gaps_and_long_absences_are_not_counted() -> None:
    model = LearnedHazard({})
    model.observe([offer(1)], T0)
    model.observe([offer(None)], after(60))
    model.observe([offer(0)], after(120))
    model.observe([offer(1)], after(180))
    model.observe([offer(0)], after(180 + 7200))
    assert model.hazard_per_hour(SPOT) is None


def test_on_demand_is_exactly_zero() -> None:
    model = LearnedHazard({})
    model.observe([offer(0, ON_DEMAND)], T0)
    assert known(model, ON_DEMAND).high == 0.0


def test_watching_a_market_learns_what_its_record_says() -> None:
    history = generate_market({SPOT: 1.0}, hours=24 * 20, seed=5, tick_s=300.0, start_at=T0)
    sim, model = Sim(history), LearnedHazard({})
    ticks = int((history.ends_at - history.starts_at).total_seconds() // 300)
    for tick in range(ticks):
        now = sim.go(300 * tick)
        model.observe(sim.provider.offers(now), now)
    recorded = history_statistics(history)[SPOT]
    assert recorded.hazard_per_hour is not None
    assert known(model).value == pytest.approx(recorded.hazard_per_hour.value, rel=0.02)
    assert known(model).source.startswith(f"{recorded.interruptions} interruptions in ")


def test_statistics_of_a_hand_written_record() -> None:
    states = [(0, 2, 1.0), (3600, 0, 2.0), (7200, 1, 2.0), (10800, None, None), (14400, 0, 2.0)]
    statistics = pool_statistics(pool_history(SPOT, states, 18000))
    assert statistics.recorded_s == 18000
    assert statistics.coverage == pytest.approx(0.8)
    assert statistics.availability is not None
    assert statistics.availability.value == pytest.approx(0.5)
    assert statistics.availability.low < 0.5 < statistics.availability.high
    assert statistics.interruptions == 1
    assert statistics.mean_up_s == 7200
    assert statistics.hazard_per_hour is not None
    assert statistics.hazard_per_hour.value == pytest.approx(1.5 / 2)
    assert statistics.min_usd_per_hour == 1.0
    assert statistics.mean_usd_per_hour == pytest.approx(1.75)
    assert statistics.max_usd_per_hour == 2.0


def test_statistics_of_pools_that_cannot_tell() -> None:
    history = market(
        pool_history(SPOT, [(0, None, None)], 60),
        pool_history(ELSEWHERE, [(0, 0, 1.0)], 60),
        pool_history(ON_DEMAND, [(0, 9, 3.0)], 60),
    )
    of = history_statistics(history)
    assert of[SPOT].availability is None
    assert of[SPOT].mean_usd_per_hour is None
    assert of[SPOT].coverage == 0
    assert of[ELSEWHERE].hazard_per_hour is None
    assert of[ELSEWHERE].mean_up_s is None
    hazard = of[ON_DEMAND].hazard_per_hour
    assert hazard is not None
    assert hazard.high == 0


def test_a_prior_that_offers_tell_is_learned_over() -> None:
    model = LearnedHazard({SPOT: PRIOR})
    reported = Estimate(0.002, 0.0, 0.01, Basis.PRIOR, "told by the provider")
    running = {SPOT}
    for hour in range(11):
        model.observe([Offer(SPOT, None, reported, None)], after(hour * 3600), running)
    calm = known(model)
    assert calm.value < 0.002
    assert calm.source.startswith("0 interruptions in 10.0 h, a prior that weighs as much as ")
    assert calm.source.endswith(" h: told by the provider")
    model.record_interruption(SPOT, after(11 * 3600))
    assert known(model).value > 3 * calm.value


def test_a_prior_that_is_reported_again_keeps_what_was_seen() -> None:
    model = LearnedHazard({})
    for hour, prior in enumerate((PRIOR, PRIOR, Estimate(0.2, 0.1, 0.4, Basis.PRIOR, "worse"))):
        model.observe([Offer(SPOT, None, prior, 1)], after(hour * 3600))
    assert known(model).source.startswith("0 interruptions in 2.0 h, ")
    assert known(model).source.endswith(": worse")


def test_a_measured_hazard_of_an_offer_is_not_a_prior() -> None:
    model = LearnedHazard({SPOT: PRIOR})
    model.observe([Offer(SPOT, None, Estimate(9, 8, 10, Basis.MEASURED, "theirs"), 1)], T0)
    assert known(model).value == pytest.approx(0.1)


def test_availability_is_learned_from_the_hours_seen() -> None:
    model = LearnedHazard({SPOT: PRIOR})
    before = model.availability(SPOT)
    assert before is not None
    assert before.basis is Basis.PRIOR
    assert before.low < 0.63 == before.value < before.high
    for tick in range(100 * 6 + 1):
        nodes = 1 if tick % 600 < 150 else 0
        model.observe([offer(nodes), offer(None, ELSEWHERE)], after(tick * 600))
    seen = model.availability(SPOT)
    assert seen is not None
    assert seen.basis is Basis.MEASURED
    # 25 of 100 hours, and the prior's 0.63 with the weight of 4 hours.
    assert seen.value == pytest.approx((0.63 * 4 + 25) / 104, abs=1e-3)
    assert 0.1 < seen.low < seen.value < seen.high < 0.45
    unseen = model.availability(ELSEWHERE)
    assert unseen is not None
    assert unseen.value == pytest.approx(0.63)
    assert model.availability(ON_DEMAND) is None
