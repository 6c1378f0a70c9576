"""Gangs that may have nodes in several zones beside gangs that may not, on generated markets.

A cell is a profile of three zones of one region, how many nodes a zone carries while it has
capacity, and a gang of 4 or 8 T4, or one of 2 to 8. The job is 4.2 hours of work on the gang, takes
twenty minutes for a launch, and is due in 7 or in 14 hours; nothing is known of traffic between
zones, so it costs nothing. ``--sample N`` takes N of the 64 windows of each cell (0: all).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from statistics import fmean, stdev

import costopt as co
from benchmarks.generated import (
    DEADLINES_H,
    JOB,
    PROFILES,
    SEEDS,
    TICK_S,
    USD_PER_HOUR,
    WINDOWS,
    generated_bench,
)
from benchmarks.trials import Effort
from costopt.backtesting.backtest import shift_job, with_deadline
from costopt.backtesting.trial import Score, Trial, Window
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job, WorkAmount
from costopt.domain.policy import StrategySpec
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.market.generator import DEFAULT_START_AT, generate_market, generator_parameters

ROOMS = {"4 to 32 nodes": (4, 32), "1 to 8 nodes": (1, 8)}
"""The generator's own, and zones that are too small for many gangs."""

GANGS = {"4": (4, 4), "8": (8, 8), "2 to 8": (2, 8)}
UNITS_PER_S = {2: 0.05, 4: 0.094, 8: 0.17}
ONE_ZONE, ZONES = "one zone", "several zones"

Figure = tuple[str, float, str]


def run(effort: Effort | None = None) -> Iterator[Figure]:
    """Yield, cell by cell, the mean dollars both ways and how far apart they are."""
    effort = effort or Effort()
    bench = generated_bench(_markets())
    for profile in PROFILES:
        for room in ROOMS:
            for gang in GANGS:
                trials = list(_trials(profile, room, gang, effort.sample or WINDOWS))
                cell = f"{profile}, {room} in a zone, a gang of {gang}"
                yield from _figures(cell, effort.of(bench, trials))


def _markets() -> Iterator[MarketHistory]:
    pools = {p: usd for p, usd in USD_PER_HOUR.items() if p.instance_type == "g4dn.xlarge"}
    shipped = generator_parameters()
    for profile in PROFILES:
        for room, (least, most) in ROOMS.items():
            capacity = replace(shipped.capacity, min_nodes=least, max_nodes=most)
            for seed in range(SEEDS):
                market = generate_market(
                    pools,
                    hours=24.0 * WINDOWS / SEEDS,
                    seed=seed,
                    profile=profile,
                    tick_s=TICK_S,
                    parameters=replace(shipped, capacity=capacity),
                )
                yield replace(market, name=f"{profile}, {room}, {seed}")


def _trials(profile: str, room: str, gang: str, windows: int) -> Iterator[Trial]:
    """One window after the other in another market; the deadlines take turns."""
    policy = co.load_policy("cheapest")
    for index in range(windows):
        lap, seed = divmod(index, SEEDS)
        hours = DEADLINES_H[(lap + seed) % len(DEADLINES_H)]
        for name, traffic_gib in ((ONE_ZONE, None), (ZONES, 0.0)):
            due = with_deadline(_job(gang, traffic_gib), 3600.0 * hours)
            job = shift_job(due, DEFAULT_START_AT + lap * timedelta(days=1))
            window = Window(f"{profile}, {room}, {seed}", job)
            yield Trial(window, replace(policy, name=name, strategy=StrategySpec("adaptive")))


def _job(gang: str, traffic_gib: float | None) -> Job:
    least, most = GANGS[gang]
    job = co.load_job(JOB)
    resources = replace(
        job.resources,
        gpu_models=("T4",),
        min_nodes=least,
        max_nodes=most,
        zone_traffic_gib=traffic_gib,
    )
    points = tuple(ThroughputSample("T4", *point) for point in UNITS_PER_S.items())
    return replace(
        job,
        phases=tuple(replace(phase, min_nodes=least, max_nodes=most) for phase in job.phases),
        work=WorkAmount(4.2 * 3600 * UNITS_PER_S[least], job.work.unit),
        resources=resources,
        throughput=Throughput(points),
        startup_s=1140.0,
    )


def _figures(cell: str, scores: Iterable[tuple[Trial, Score]]) -> Iterator[Figure]:
    costs: dict[str, dict[tuple[str, object], float]] = {ONE_ZONE: {}, ZONES: {}}
    late = 0
    for trial, score in scores:
        assert score.usd is not None
        at = trial.window.market, trial.window.job.start_at
        costs[trial.label][at] = score.usd
        late += score.on_time is not True
    apart = [usd - costs[ONE_ZONE][at] for at, usd in costs[ZONES].items()]
    mean = fmean(costs[ONE_ZONE].values())
    yield f"{cell}: {ONE_ZONE}", mean, "$"
    yield f"{cell}: {ZONES}", fmean(costs[ZONES].values()), "$"
    yield f"{cell}: {ZONES} above {ONE_ZONE}", 100.0 * fmean(apart) / mean, "%"
    if len(apart) > 1:
        error = stdev(apart) / math.sqrt(len(apart))
        yield f"{cell}: its standard error", 100.0 * error / mean, "%"
    yield f"{cell}: other costs", float(sum(abs(usd) > 1e-9 for usd in apart)), "windows"
    yield f"{cell}: late", float(late), "runs"
