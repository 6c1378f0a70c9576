"""``adaptive`` beside greedy, Uniform Progress and ``milp`` on windows of generated markets.

A cell is a profile, a choice of machines and a policy. The market has three zones of one region;
the job runs on two nodes of T4, on two of T4 or of L4, which are faster and cost more, or on one to
eight of T4. It is 4.2 hours of work on two T4, takes twenty minutes for a launch, and is due in 7
or in 14 hours. ``--sample N`` takes N of the 64 windows of each cell (0: all).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import costopt as co
from benchmarks.trials import Effort
from costopt.backtesting.backtest import backtest_config, shift_job, with_deadline
from costopt.backtesting.trial import BacktestConfig, Score, Trial, Window
from costopt.domain.account import Account
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job, WorkAmount
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.engine.settings import DEFAULT_COOLDOWN_S
from costopt.market.generator import DEFAULT_START_AT, generate_market

PROFILES = ("calm", "typical", "harsh", "scarce")
WINDOWS = 64
SEEDS = 16
"""Markets of each profile; the windows of one are a day apart."""

TICK_S = 300.0
DEADLINES_H = (7.0, 14.0)
POLICIES = ("cheapest", "greenest")
OURS, OTHERS = "adaptive", ("greedy_spot", "uniform_progress", "milp")
JOB = Path(__file__).parents[1] / "examples/finetune/job.yaml"

USD_PER_HOUR = {
    Pool("aws", "us-east-1", f"us-east-1{zone}", machine, capacity_type): usd_per_hour
    for machine, spot_usd, on_demand_usd in (
        ("g4dn.xlarge", 0.18936, 0.526),
        ("g6.xlarge", 0.410448, 0.8048),
    )
    for capacity_type, usd_per_hour in (
        (CapacityType.SPOT, spot_usd),
        (CapacityType.ON_DEMAND, on_demand_usd),
    )
    for zone in "abc"
}
"""The catalogue's prices in us-east-1."""

T4_PAIR = ThroughputSample("T4", 2, 0.05)
SPEEDS = {
    "one GPU model": (T4_PAIR,),
    "two GPU models": (T4_PAIR, ThroughputSample("L4", 2, 0.1)),
    "gangs of 1 to 8": (
        ThroughputSample("T4", 1, 0.026),
        T4_PAIR,
        ThroughputSample("T4", 4, 0.094),
        ThroughputSample("T4", 8, 0.17),
    ),
}

Figure = tuple[str, float, str]


def run(effort: Effort | None = None) -> Iterator[Figure]:
    """Yield, cell by cell, the mean objective and by how much each policy is above ``adaptive``."""
    effort = effort or Effort()
    bench = generated_bench(_markets())
    for profile in PROFILES:
        for speeds in SPEEDS:
            for name in POLICIES:
                trials = list(_trials(profile, speeds, name, effort.sample or WINDOWS))
                yield from _figures(f"{profile}, {speeds}, {name}", effort.of(bench, trials))


def generated_bench(markets: Iterable[MarketHistory]) -> BacktestConfig:
    """Return what trials on these markets are run with: no forecasts, nothing known before."""
    return backtest_config(
        {market.name: market for market in markets},
        notice_s=120.0,
        cooldown_s=DEFAULT_COOLDOWN_S,
        price_forecasts=False,
        carbon=None,
        account=Account(),
        past_s=0.0,
    )


def _markets() -> Iterator[MarketHistory]:
    hours = 24.0 * WINDOWS / SEEDS
    for profile in PROFILES:
        for seed in range(SEEDS):
            yield generate_market(
                USD_PER_HOUR, hours=hours, seed=seed, profile=profile, tick_s=TICK_S
            )


def _trials(profile: str, speeds: str, policy_name: str, windows: int) -> Iterator[Trial]:
    """One window after the other in another market; the deadlines take turns."""
    policy, job = _policy(policy_name), build_job(speeds)
    for index in range(windows):
        lap, seed = divmod(index, SEEDS)
        due = with_deadline(job, 3600.0 * DEADLINES_H[(lap + seed) % len(DEADLINES_H)])
        window = Window(
            f"{profile}-{seed}", shift_job(due, DEFAULT_START_AT + lap * timedelta(days=1))
        )
        for name in (OURS, *OTHERS):
            yield Trial(window, replace(policy, name=name, strategy=StrategySpec(name)))


@cache
def _policy(name: str) -> Policy:
    return co.load_policy(name)


@cache
def build_job(speeds: str) -> Job:
    """Return 4.2 hours of work on two nodes of T4, for the gangs of ``SPEEDS[speeds]``."""
    points = SPEEDS[speeds]
    job = co.load_job(JOB)
    resources = replace(
        job.resources,
        gpu_models=tuple(sorted({point.gpu_model for point in points})),
        min_nodes=min(point.gpus for point in points),
        max_nodes=max(point.gpus for point in points),
    )
    least, most = resources.min_nodes, resources.max_nodes
    return replace(
        job,
        phases=tuple(replace(phase, min_nodes=least, max_nodes=most) for phase in job.phases),
        work=WorkAmount(4.2 * 3600 * T4_PAIR.units_per_s, job.work.unit),
        resources=resources,
        throughput=Throughput(points),
        startup_s=1140.0,
    )


def _figures(cell: str, scores: Iterable[tuple[Trial, Score]]) -> Iterator[Figure]:
    costs: dict[str, dict[Window, float]] = defaultdict(dict)
    late = 0
    for trial, score in scores:
        assert score.usd is not None
        assert score.kwh is not None
        assert score.gco2e is not None
        objective = trial.policy.objective
        costs[trial.label][trial.window] = objective.score_usd(score.usd, score.kwh, score.gco2e)
        late += score.on_time is not True
    means = {name: fmean(by_window.values()) for name, by_window in costs.items()}
    for name, mean in means.items():
        yield f"{cell}: {name}", mean, "$"
    best = min(OTHERS, key=means.__getitem__)
    apart = [usd - costs[best][window] for window, usd in costs[OURS].items()]
    yield f"{cell}: {OURS} above {best}", 100.0 * fmean(apart) / means[best], "%"
    if len(apart) > 1:
        error = stdev(apart) / math.sqrt(len(apart))
        yield f"{cell}: its standard error", 100.0 * error / means[best], "%"
    yield f"{cell}: late", float(late), "runs"
