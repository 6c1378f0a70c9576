"""The strategy adaptive over several zones with their prices, against hindsight and baselines.

The record is AWS V100 spot of five zones, February to April 2023, every 195 s, with the price of
every tick; 48 h of work, and 0.2 h lost at every launch. What is known before a job starts was
fitted on the records of 2022.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from benchmarks.fit_lifetime import fit
from costopt.domain.history import MarketHistory
from costopt.domain.policy import StrategyChoice
from costopt.domain.ports import Strategy
from costopt.market.lifetime import Lifetimes, Rates
from costopt.market.wide_csv import import_wide_csv
from costopt.replay.hindsight import hindsight_usd
from costopt.replay.rehearsal import rehearse
from costopt.strategies import build
from costopt.strategies.adaptive import Adaptive
from costopt.strategies.shield import Shielded
from tests.replay.cant_be_late import (
    EPOCH,
    ON_DEMAND_USD,
    NoHazard,
    OneMachine,
    OnePower,
    job,
    policy,
    read_trace,
)

POOR = frozenset({"us-east-1a", "us-east-1d", "us-east-2a"})
DEADLINES_H = (52.0, 72.0)
OVERHEAD_H = 0.2
STARTS = 6
OURS, BASELINES = "adaptive", ("uniform_progress", "greedy_spot")


def run() -> Iterator[tuple[str, float, str]]:
    """Mean cost over the mean optimum, for all five zones and for the three poor ones."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("  COSTOPT_DATA is unset: adaptive was not compared over several zones")
        return
    history = import_wide_csv(
        Path(data) / "aws_v100_2023_price_avail_5zones.csv.gz",
        on_demand_usd_per_hour=lambda _: ON_DEMAND_USD,
    )
    traces = sorted((Path(data) / "traces").glob("*2022*.json"))
    prior = fit(read_trace(path) for path in traces)
    zones = frozenset(pool.zone for pool in history.pools)
    for label, chosen in (("five zones", zones), ("three poor zones", POOR)):
        for deadline_h in DEADLINES_H:
            yield from _compare(
                f"{label}, due in {deadline_h:g} h", history, chosen, deadline_h, prior
            )


def _compare(
    label: str, history: MarketHistory, zones: frozenset[str], deadline_h: float, prior: Rates
) -> Iterator[tuple[str, float, str]]:
    some = {pool: known for pool, known in history.pools.items() if pool.zone in zones}
    market = MarketHistory(label, some, history.tick_s, history.source)
    starts_s = _starts_s(market, deadline_h)
    best_usd = fmean(_best_usd(market, deadline_h, start_s) for start_s in starts_s)
    yield f"{label}: hindsight optimum", best_usd, "$"
    for name in (OURS, *BASELINES):
        spent = [_spend(name, market, deadline_h, start_s, prior) for start_s in starts_s]
        yield f"{label}: {name}", fmean(usd for usd, _ in spent) / best_usd, "×"
        yield f"{label}: {name}, late", float(sum(not on_time for _, on_time in spent)), "runs"


def _starts_s(market: MarketHistory, deadline_h: float) -> list[float]:
    """Seconds after the epoch of the benchmark's jobs, on the record's grid."""
    grid_s = market.tick_s or 1.0
    room = market.ends_at - market.starts_at - timedelta(hours=deadline_h)
    first_s = (market.starts_at - EPOCH).total_seconds()
    ticks = int(room.total_seconds() // grid_s)
    return [first_s + grid_s * (ticks * i // (STARTS - 1)) for i in range(STARTS)]


def _best_usd(market: MarketHistory, deadline_h: float, start_s: float) -> float:
    task = job(deadline_h, OVERHEAD_H, start_s=start_s)
    best_usd = hindsight_usd(task, policy("greedy_spot"), market, OneMachine())
    assert best_usd is not None
    return best_usd


def _spend(
    name: str, market: MarketHistory, deadline_h: float, start_s: float, prior: Rates
) -> tuple[float, bool]:
    done = rehearse(
        job(deadline_h, OVERHEAD_H, start_s=start_s),
        policy(name),
        market,
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        strategy=_strategy(name, prior),
    )
    return done.summary.usd, done.summary.on_time is True


def _strategy(name: str, prior: Rates) -> Strategy:
    if name == OURS:
        return Shielded(Adaptive(lifetimes=Lifetimes(prior)))
    return build(StrategyChoice(name))
