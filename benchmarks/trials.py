"""Runs a benchmark's trials in processes, and keeps their scores where a file is named."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costopt.backtesting.backtest import backtest
from costopt.backtesting.executors import run_in_processes
from costopt.backtesting.results_file import open_results_file
from costopt.backtesting.trial import BacktestConfig, Score, Trial, TrialKeys, code_digest
from costopt.controller.forecasts import DEFAULT_HAZARD
from costopt.domain.estimate import Estimate
from costopt.domain.history import MarketHistory
from costopt.domain.market import Pool
from costopt.domain.ports import HazardModel, PowerModel, Strategy
from costopt.market.hazard import LearnedHazard
from tests.support.cant_be_late import OneMachine, OnePower


@dataclass(frozen=True, slots=True)
class Effort:
    """``sample`` windows (0: all) in ``jobs`` processes; ``results`` keeps scores between runs."""

    sample: int = 6
    jobs: int = len(os.sched_getaffinity(0))
    results: Path | None = None

    def of(self, bench: BacktestConfig, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Score]]:
        """Every trial's score, as they come."""
        if self.results is None:
            yield from _counted(backtest(bench, trials, self._run), len(trials))
            return
        own = hashlib.sha256(pickle.dumps(bench.trial_strategy)).hexdigest()[:16]
        keys = TrialKeys(bench, f"{code_digest()} {_benchmarks()} {own}")
        with open_results_file(self.results) as file:
            yield from _counted(backtest(bench, trials, self._run, file, keys), len(trials))

    def _run(self, bench: BacktestConfig, trials: Sequence[Trial]) -> Iterable[tuple[Trial, Score]]:
        return run_in_processes(bench, trials, self.jobs)


def bench_of(
    markets: Mapping[str, MarketHistory],
    strategies: Callable[[Trial], Strategy | None] | None = None,
) -> BacktestConfig:
    """One machine, one power, no knowledge of the pools beforehand."""
    return BacktestConfig(markets, OneMachine(), _powers, _hazards, trial_strategy=strategies)


def _powers() -> PowerModel:
    return OnePower()


def _hazards() -> HazardModel:
    return LearnedHazard(_unknown)


def _unknown(_: Pool) -> Estimate | None:
    return DEFAULT_HAZARD


def _benchmarks() -> str:
    """What the benchmarks themselves add to a score's key."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _counted(scores: Iterable[tuple[Trial, Score]], total: int) -> Iterator[tuple[Trial, Score]]:
    """The scores, with a line that counts them on a terminal."""
    shown = sys.stderr.isatty()
    for count, pair in enumerate(scores, 1):
        yield pair
        if shown:
            print(f"\r  {count} of {total} runs", end="", file=sys.stderr, flush=True)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
