"""The default policy against the baselines, window by window, on typical markets.

The job is that of ``costopt init``: ten hours of work and ten minutes of start-up. The markets are
``sample``, which costopt ships, and the same prices with capacity drawn by four other seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import costopt as co
from benchmarks.sample_market import PRICES, sample_market
from costopt.backtesting.ranking import PairedDifference, paired_differences, window_costs
from costopt.backtesting.trial import Window
from costopt.market.history_file import write_history

SEEDS = range(5)
STARTS = 40
DEADLINES_H = (12, 13, 14, 16, 24)
DEFAULT, HINDSIGHT = "cheapest", "hindsight optimum"


def run() -> Iterator[tuple[str, float, str]]:
    """Yield, by deadline, dollars of the default, and what each baseline costs beyond it."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("  COSTOPT_DATA is unset: the markets of other seeds cannot be made")
        return
    job = co.load_job(str(files("costopt.spec").joinpath("data/job.yaml")))
    markets = [_market(Path(data) / PRICES, seed) for seed in SEEDS]
    for hours in DEADLINES_H:
        done = co.backtest(job, DEFAULT, markets, starts=STARTS, deadlines=[hours * 3600.0])
        costs = window_costs(done.scores)
        late = sum(score.on_time is False for trial, score in done.scores if trial.label == DEFAULT)
        own = costs[DEFAULT].values()
        yield f"{hours} h: {DEFAULT}, mean of {len(own)} windows", sum(own) / len(own), "$"
        yield f"{hours} h: {DEFAULT}, late", float(late), "windows"
        for less in paired_differences(costs, DEFAULT):
            if less.policy != HINDSIGHT:
                yield from _figures(f"{hours} h: {less.policy} less {DEFAULT}", less)
        yield f"{hours} h: markets of five where it is first", float(_first(costs)), "markets"


def _market(prices: Path, seed: int) -> co.Market:
    history = replace(sample_market(prices, seed), name=f"sample-{seed}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "market.parquet"
        write_history(history, path)
        return co.read_market(path)


def _figures(name: str, less: PairedDifference) -> Iterator[tuple[str, float, str]]:
    yield f"{name}, mean", less.mean_usd, "$"
    if less.low_usd is not None and less.high_usd is not None:
        yield f"{name}, 95 % from", less.low_usd, "$"
        yield f"{name}, 95 % to", less.high_usd, "$"


def _first(costs: Mapping[str, Mapping[Window, float]]) -> int:
    """Return in how many markets no baseline has a lower mean."""
    first = 0
    for market in {window.market for window in costs[DEFAULT]}:
        here = {
            policy: sum(usd for window, usd in by_window.items() if window.market == market)
            for policy, by_window in costs.items()
            if policy != HINDSIGHT
        }
        first += here[DEFAULT] == min(here.values())
    return first
