"""Trials in processes of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from costopt.controller.child import exit_with_parent
from costopt.domain.errors import CostoptError
from costopt.replay.score import Score
from costopt.replay.trial import BacktestConfig, Trial

_bench: BacktestConfig | None = None


def run_in_processes(
    bench: BacktestConfig, trials: Sequence[Trial], jobs: int
) -> Iterator[tuple[Trial, Score]]:
    """Scores as they come, from ``jobs`` processes; from this one where there is no gain in more.

    Raises CostoptError where a process dies.
    """
    jobs = min(jobs, len(trials))
    if jobs <= 1:
        for trial in trials:
            yield trial, bench.score(trial)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin, (bench,)) as pool:
        futures = {pool.submit(_score, trial): trial for trial in trials}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise CostoptError(
                "a process that replays died",
                hint="it may have run out of memory: use fewer with --jobs; with --results, the "
                "scores so far are kept",
                code="process_died",
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(bench: BacktestConfig) -> None:
    global _bench  # noqa: PLW0603 - a process's own bench, sent once and not with every trial
    _bench = bench
    exit_with_parent()


def _score(trial: Trial) -> Score:
    assert _bench is not None
    return _bench.score(trial)
