"""Forecasts of the policy that will run: futures, and what the engine makes of the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from costopt.backtesting.backtest import backtest_config
from costopt.backtesting.trial import Score, Trial, Window
from costopt.domain.account import UNLIMITED
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import Node, NodeState
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import Job, Phase
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.progress import GangState, Progress
from costopt.domain.view import JobView
from costopt.market.generator import generate_market
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import prepare
from costopt.optimize.request import PlanRequest
from costopt.planning.forecast.forecaster import PICKS_BY_SCORE, forecast_job, forecaster_of
from costopt.planning.forecast.future_market import history_of
from costopt.planning.forecast.futures import Futures, draw_futures
from costopt.planning.forecast.gangs import build_gangs
from costopt.planning.forecast.policy_run import run_policy
from costopt.planning.quotes import QuoteSet, recorded_quotes
from costopt.planning.request import build_plan_request, plan_job
from costopt.spec import load_job

DAY_H = 24.0
TICK_S = 300.0
NOTICE_S = 120.0
TYPE = "g4dn.xlarge"
ZONES = tuple(f"us-east-1{zone}" for zone in "abc")
PRICES = {CapacityType.SPOT: 0.2, CapacityType.ON_DEMAND: 0.526}
JOB = """\
kind: job
version: 1
name: counted
work: {amount: 7200, unit: steps}
deadline: 210m
resources: {gpu_models: [T4]}
throughput: {points: [{gpu: T4, gpus: 1, units_per_s: 1.0}]}
checkpoint: {uri: saves, size_gib: 1, save: 30s, restore: 2m}
startup: 5m
run: [python, train.py]
"""


def pool(zone: str, terms: CapacityType, kind: str = TYPE) -> Pool:
    return Pool("aws", "us-east-1", zone, kind, terms)


def prices_of(types: Sequence[str]) -> dict[Pool, float]:
    """The dollars per node-hour of machines of these types, each 1.9 times those of the last."""
    return {
        pool(zone, terms, kind): usd * 1.9**number
        for zone in ZONES
        for terms, usd in PRICES.items()
        for number, kind in enumerate(types)
    }


def market(
    profile: str = "typical", days: float = 20.0, types: Sequence[str] = (TYPE,)
) -> MarketHistory:
    return generate_market(prices_of(types), hours=days * DAY_H, seed=7, profile=profile)


def job_at(folder: Path, now: datetime) -> Job:
    path = folder / "job.yaml"
    path.write_text(JOB)
    return load_job(path, now)


def offers_of(history: MarketHistory, now: datetime) -> list[Offer]:
    known = {p: h.at(now) for p, h in history.pools.items() if p.capacity_type is CapacityType.SPOT}
    return [
        Offer(p, Estimate.exact(0.2, Basis.MEASURED, "test", now), None, s.nodes_available)
        for p, s in known.items()
        if s is not None
    ]


def draw(history: MarketHistory | None, offers: Sequence[Offer], now: datetime) -> Futures:
    return draw_futures(offers, [1] * len(offers), history, now, 6 * 3600.0, 50)


def test_futures_are_windows_of_the_past_and_know_nothing_of_what_comes() -> None:
    history = market()
    now = history.starts_at + timedelta(days=10)
    offers = offers_of(history, now)
    seen = draw(history, offers, now)
    assert "past windows" in seen.source
    assert seen.nodes.shape == (50, 3, 72)
    never = MarketState(now + timedelta(seconds=1), 0, 99.0)
    changed = {
        p: PoolHistory(p, (*(s for s in h.states if s.starts_at <= now), never), h.ends_at)
        for p, h in history.pools.items()
    }
    other = draw(replace(history, pools=changed), offers, now)
    assert np.array_equal(seen.nodes, other.nodes)
    assert np.array_equal(seen.price, other.price)


def test_windows_that_begin_like_the_present_come_first() -> None:
    history = market("scarce")
    now = history.starts_at + timedelta(days=10)
    offers = offers_of(history, now)
    is_up = [bool(each.nodes_available) for each in offers]
    begin = draw(history, offers, now).nodes[:, :, 0] > 0
    assert (begin == is_up).mean() > 0.9


def test_the_hazards_of_a_plan_know_nothing_of_what_comes() -> None:
    history = market()
    now = history.starts_at + timedelta(days=10)
    cut = replace(history.until(now), name=history.name)
    assert recorded_quotes(history, now).offers == recorded_quotes(cut, now).offers


@pytest.mark.parametrize("days", [0.0, 0.2])
def test_a_short_record_teaches_the_model(days: float) -> None:
    history = market("scarce")
    now = history.starts_at + timedelta(days=days)
    offers = offers_of(history, now)
    seen = draw(history, offers, now)
    assert "windows" not in seen.source
    up_now = [bool(each.nodes_available) for each in offers]
    assert ((seen.nodes[:, :, 0] > 0) == up_now).all()
    assert 0 < (seen.nodes > 0).mean() < 1


def test_without_a_record_the_present_is_not_known_either() -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    offers = [Offer(pool(zone, CapacityType.SPOT), None, None, None) for zone in ZONES]
    seen = draw(None, offers, now)
    assert 0 < (seen.nodes[:, :, 0] > 0).mean() < 1
    assert draw(None, [], now).nodes.shape == (50, 0, 72)


def quotes_of(history: MarketHistory, folder: Path) -> tuple[Job, QuoteSet]:
    now = history.starts_at + timedelta(days=10)
    return job_at(folder, now), recorded_quotes(history, now)


def prepared(job: Job, policy: Policy, seen: QuoteSet) -> tuple[PlanRequest, PlannedJob]:
    request = build_plan_request((job,), policy, seen, UNLIMITED)
    return request, prepare(request)[0][0]


def engine_runs(futures: Futures, job: Job, policy: Policy, seen: QuoteSet) -> Iterator[Score]:
    """Yield what the engine makes of each future."""
    for number in range(len(futures.nodes)):
        history = history_of(futures, number, seen.offers, seen.now, "future")
        config = backtest_config(
            {history.name: history},
            notice_s=NOTICE_S,
            cooldown_s=300.0,
            price_forecasts=False,
            carbon=None,
            account=UNLIMITED,
            past_s=0.0,
        )
        yield config.score(Trial(Window(history.name, job), policy))


def compare_with_engine(job: Job, policy: Policy, seen: QuoteSet, rel: float) -> None:
    """Run the policy's array form and the engine in the same futures."""
    runs = 24
    _, part = prepared(job, policy, seen)
    gangs = build_gangs(part.table, part.demand, np.zeros(runs))
    assert gangs is not None
    offers, nodes = gangs.interruptible_pools()
    span_s = 1.15 * 3600 * part.demand.hours_left
    futures = draw_futures(offers, nodes, seen.history, seen.now, span_s, runs)
    assert futures.tick_s == TICK_S
    made = run_policy(
        gangs,
        futures,
        policy.objective,
        release_h=0.0,
        due_h=part.demand.due_h,
        billed_to_h=TICK_S / 3600,
        begun=False,
    )
    scores = list(engine_runs(futures, job, policy, seen))
    assert all(score.on_time for score in scores)
    assert (made.finish_h <= part.demand.due_h + 1e-9).all()
    assert made.usd.mean() == pytest.approx(fmean(score.usd or 0.0 for score in scores), rel=rel)
    assert made.kwh.mean() == pytest.approx(fmean(score.kwh or 0.0 for score in scores), rel=rel)


@pytest.mark.parametrize("profile", ["typical", "scarce"])
@pytest.mark.parametrize("strategy", sorted(PICKS_BY_SCORE))
def test_the_array_form_spends_what_the_engine_spends_in_the_same_futures(
    strategy: str, profile: str, tmp_path: Path
) -> None:
    job, seen = quotes_of(market(profile), tmp_path)
    policy = Policy("tried", strategy=StrategySpec(strategy))
    if strategy == "on_demand":
        limits = replace(policy.limits, capacity_types=(CapacityType.ON_DEMAND,))
        policy = replace(policy, limits=limits)
    compare_with_engine(job, policy, seen, 0.05)


SIZES = """\
resources: {gpu_models: [T4], min_gpus: 1, max_nodes: 4}
throughput: {points: [{gpu: T4, gpus: 1, units_per_s: 1.0}], scaling_efficiency: 0.93}
"""
TYPES = """\
resources: {gpu_models: [T4, A10G], min_gpus: 1, max_gpus: 1}
throughput: {points: [{gpu: T4, gpus: 1, units_per_s: 1}, {gpu: A10G, gpus: 1, units_per_s: 2.2}]}
"""
TASKS = """\
resources: {gpu_models: [T4]}
array: {tasks: 48, duration: 20m, parallel: 1..4}
"""


@pytest.mark.parametrize(
    ("choice", "hours"), [(SIZES, 7.0), (SIZES, 3.0), (TYPES, 6.0), (TASKS, 8.0)]
)
def test_of_gangs_that_differ_the_array_form_takes_those_that_the_engine_takes(
    choice: str, hours: float, tmp_path: Path
) -> None:
    lines = JOB.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("resources", "throughput"))]
    if choice is TASKS:
        kept = [line for line in kept if not line.startswith(("work", "checkpoint"))]
    text = "".join(kept).replace("7200", "21600").replace("210m", f"{hours * 60:g}m")
    path = tmp_path / "job.yaml"
    path.write_text(text + choice)
    types = (TYPE, "g5.xlarge") if choice is TYPES else (TYPE,)
    history = market("typical", types=types)
    now = history.starts_at + timedelta(days=10)
    seen = recorded_quotes(history, now)
    compare_with_engine(load_job(path, now), Policy("tried"), seen, 0.12)


def test_a_strategy_that_follows_plans_is_forecast_by_its_plan(tmp_path: Path) -> None:
    job, seen = quotes_of(market(), tmp_path)
    milp = Policy("p", strategy=StrategySpec("milp"))
    assert forecaster_of(milp, seen.history) is None
    followed = plan_job(job, milp, seen)
    assert not followed.proposals
    decided = plan_job(job, Policy("p", strategy=StrategySpec("adaptive")), seen)
    forecast, proposal = decided.forecast_of(job.name), decided.proposal_of(job.name)
    assert forecast is not None
    assert proposal is not None
    assert proposal.usd_mean == pytest.approx(followed.forecasts[0][1].usd_mean, rel=0.02)
    assert forecast.usd_mean != proposal.usd_mean


def test_more_time_costs_no_more_and_on_demand_costs_the_same(tmp_path: Path) -> None:
    job, seen = quotes_of(market("harsh"), tmp_path)
    usd = []
    for hours in (2.5, 3.0, 4.0, 8.0):
        due = replace(job, deadline_at=job.start_at + timedelta(hours=hours))
        request, part = prepared(due, Policy("cheap"), seen)
        forecast = forecast_job(request, part, seen.history)
        assert forecast is not None
        assert forecast.usd_mean <= forecast.usd_p95
        usd.append(forecast.usd_mean)
    assert sorted(usd, reverse=True) == pytest.approx(usd, rel=0.02)
    assert usd[-1] < 0.8 * usd[0]


def test_interruptible_capacity_alone_may_be_late(tmp_path: Path) -> None:
    job, seen = quotes_of(market("scarce"), tmp_path)
    policy = Policy("cheap")
    limits = replace(policy.limits, capacity_types=(CapacityType.SPOT,))
    request, part = prepared(job, replace(policy, limits=limits), seen)
    forecast = forecast_job(request, part, seen.history)
    assert forecast is not None
    assert 0 < forecast.on_time.value < 1
    assert forecast.falls_back.low == 0


def test_a_gang_that_runs_goes_on_without_a_start(tmp_path: Path) -> None:
    job, seen = quotes_of(market("calm"), tmp_path)
    request, part = prepared(job, Policy("cheap"), seen)
    spot = pool(ZONES[0], CapacityType.SPOT)
    node = Node("n", "o", job.name, spot, "k", NodeState.RUNNING, job.start_at, 0.2)
    progress = Progress(state=GangState.TRAINING, done_units=3600.0, saved_units=3600.0)
    begun = replace(request, jobs=(JobView(job, progress, nodes=(node,)),))
    half = prepare(begun)[0][0]
    whole_forecast = forecast_job(request, part, seen.history)
    half_forecast = forecast_job(begun, half, seen.history)
    assert whole_forecast is not None
    assert half_forecast is not None
    took_s = (half_forecast.finish_p50_at - seen.now).total_seconds()
    assert took_s == pytest.approx(3600, rel=0.03)
    assert half_forecast.usd_mean < 0.6 * whole_forecast.usd_mean


def phased_job(folder: Path, now: datetime) -> Job:
    """One node in the first half, up to four in the second."""
    sizes = JOB.replace("[T4]}", "[T4], max_gpus: 4, max_nodes: 4}")
    path = folder / "sizes.yaml"
    path.write_text(sizes.replace("1.0}]}", "1.0}], scaling_efficiency: 0.9}"))
    one = Phase("first", 0.5, min_nodes=1, max_nodes=1)
    return replace(load_job(path, now), phases=(one, replace(one, name="second", max_nodes=4)))


def test_phases_that_limit_nodes_differently_are_not_forecast(tmp_path: Path) -> None:
    _, seen = quotes_of(market(), tmp_path)
    request, part = prepared(phased_job(tmp_path, seen.now), Policy("cheap"), seen)
    assert forecast_job(request, part, seen.history) is None


def test_the_notice_is_that_of_the_account_s_provider(tmp_path: Path) -> None:
    job, seen = quotes_of(market("harsh"), tmp_path)
    usd = [
        made.usd_mean
        for notices_s in ({}, {"aws": 120.0}, {"aws": 0.0}, {"gcp": 0.0})
        if (made := plan_job(job, Policy("p"), replace(seen, notices_s=notices_s)).forecasts[0][1])
    ]
    usual, stated, none, of_another = usd
    assert usual == stated == of_another != none
