"""Five zones with their prices: the best single zone, all of them at once, and hindsight.

The recorded availability and spot prices of one V100 in five AWS zones (February to April 2023,
every 195 s), on demand at 3.06 $/h beside each; 48 h of work, 0.2 h per launch, wherever it hops
to; then the three poorest zones alone. What is known before a job starts was fitted on the traces
of 2022. ``--sample N`` takes N starts (0: 32).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from benchmarks.fit_lifetime import fit
from benchmarks.trials import Effort, bench_of
from costopt.backtesting.backtest import (
    BASELINES,
    OPTIMUM,
    hindsight_policy,
    record_coverage,
    window_starts,
    windows,
)
from costopt.backtesting.ranking import ratio_interval
from costopt.backtesting.trial import Trial, Window
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.ports import Strategy
from costopt.market.importers import import_wide_csv
from costopt.market.lifetime import AgeRates, LifetimeModel
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.shield import ShieldedStrategy
from tests.support.cant_be_late import ON_DEMAND_USD, job, policy, read_trace

RECORD = "aws_v100_2023_price_avail_5zones.csv.gz"
DEADLINES_H = (52.0, 60.0, 72.0)
OVERHEAD_H = 0.2
STARTS = 32
OURS = "adaptive"
POOR = frozenset({"us-east-1a", "us-east-1d", "us-east-2a"})

Figure = tuple[str, float, str]
Costs = dict[tuple[str, str], dict[Window, float]]


def run(effort: Effort | None = None) -> Iterable[Figure]:
    """Ratios to the optimum of all zones by deadline; nothing without data."""
    folder = os.environ.get("COSTOPT_DATA")
    if folder is None:
        print("  COSTOPT_DATA is unset: the five zones were not replayed")
        return
    effort = effort or Effort()
    record = import_wide_csv(Path(folder) / RECORD, on_demand_usd_per_hour=_on_demand)
    traces = sorted((Path(folder) / "traces").glob("*2022*.json"))
    ours = Ours(fit(read_trace(path) for path in traces))
    zones = _single_zones(record)
    poor = {zone: market for zone, market in zones.items() if zone in POOR}
    for deadline_h in DEADLINES_H:
        yield from _at(deadline_h, {"five zones": record, **zones}, ours, effort)
        together = {pool: known for each in poor.values() for pool, known in each.pools.items()}
        some = replace(record, name="poor zones", pools=together)
        yield from _at(deadline_h, {"poor zones": some, **poor}, ours, effort)


@dataclass(frozen=True, slots=True)
class Ours:
    """The strategy with a prior of another year."""

    rates: AgeRates

    def __call__(self, trial: Trial) -> Strategy | None:
        """None for every other strategy."""
        if trial.label != OURS:
            return None
        return ShieldedStrategy(AdaptiveStrategy(lifetimes=LifetimeModel(prior=self.rates)))


def _at(
    deadline_h: float, markets: Mapping[str, MarketHistory], ours: Ours, effort: Effort
) -> Iterable[Figure]:
    """``markets`` are first all zones together, then each."""
    together, record = next(iter(markets.items()))
    task = job(deadline_h, OVERHEAD_H)
    task = replace(task, start_at=record.starts_at, deadline_at=record.starts_at + _span(task))
    starts_at = window_starts(
        task, record, effort.sample or STARTS, record_coverage(record, record.pools, _span(task))
    )
    trials = [
        Trial(window, each)
        for name in markets
        for window in windows(task, name, starts_at, (task.startup_s,))
        for each in (hindsight_policy(policy(OURS)), policy(OURS), *map(policy, BASELINES))
        if name == together or each.name in (OURS, OPTIMUM)
    ]
    costs: Costs = defaultdict(dict)
    late = 0
    for trial, score in effort.of(bench_of(markets, ours), trials):
        assert score.usd is not None
        costs[trial.window.market, trial.label][replace(trial.window, market=together)] = score.usd
        late += score.on_time is not True
    label = f"{together}, {deadline_h:g} h"
    yield from _reported(label, costs, together, [name for name in markets if name != together])
    yield f"{label}: late", float(late), "runs"


def _reported(label: str, costs: Costs, together: str, zones: Sequence[str]) -> Iterable[Figure]:
    best = costs[together, OPTIMUM]
    means = {key: fmean(found.values()) for key, found in costs.items()}
    bound = means[together, OPTIMUM]
    yield f"{label}: optimum of all zones", bound, "$"
    yield f"{label}: {OURS} in the best zone", min(means[z, OURS] for z in zones) / bound, "×"
    each_best = fmean(min(costs[z, OURS][window] for z in zones) for window in best)
    yield f"{label}: {OURS} in each window's best zone", each_best / bound, "×"
    yield f"{label}: optimum of the best zone", min(means[z, OPTIMUM] for z in zones) / bound, "×"
    for name in (*BASELINES, OURS):
        yield f"{label}: {name} in all zones", means[together, name] / bound, "×"
    ours = costs[together, OURS]
    interval = ratio_interval([ours[w] for w in best], list(best.values()), seed=0)
    if interval is not None:
        yield f"{label}: {OURS} in all zones, from", interval[0], "×"
        yield f"{label}: {OURS} in all zones, to (95 %)", interval[1], "×"


def _single_zones(record: MarketHistory) -> dict[str, MarketHistory]:
    zones = dict.fromkeys(pool.zone for pool in record.pools)
    return {
        zone: replace(
            record, name=zone, pools={p: h for p, h in record.pools.items() if p.zone == zone}
        )
        for zone in zones
    }


def _on_demand(_: Pool) -> float | None:
    return ON_DEMAND_USD


def _span(task: Job) -> timedelta:
    return task.until_at - task.start_at
