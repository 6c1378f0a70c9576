"""Where the trials of a backtest run: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costopt.replay.backtest import Runner
from costopt.replay.process_pool import run_in_processes
from costopt.replay.score import Score
from costopt.replay.trial import BacktestConfig, Trial

MIN_TRIALS_PER_PROCESS = 8
"""Runs that a process must have to do before starting it, some two seconds, is worth while."""


@dataclass(frozen=True, slots=True)
class TrialExecutor:
    """``jobs`` processes, None for as many as are worth while, or the Ray cluster at ``ray``."""

    jobs: int | None
    ray: str | None

    def runner(self) -> Runner:
        """What runs the trials. Raises MissingExtraError where Ray is asked for and missing."""
        if self.ray is None:
            return self._in_processes
        from costopt.replay.ray_pool import require_ray

        require_ray()
        return self._on_ray

    def _in_processes(
        self, bench: BacktestConfig, trials: Sequence[Trial]
    ) -> Iterator[tuple[Trial, Score]]:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        worth = min(cores or 1, len(trials) // MIN_TRIALS_PER_PROCESS)
        return run_in_processes(bench, trials, worth if self.jobs is None else self.jobs)

    def _on_ray(
        self, bench: BacktestConfig, trials: Sequence[Trial]
    ) -> Iterator[tuple[Trial, Score]]:
        from costopt.replay.ray_pool import run_on_ray

        assert self.ray is not None
        return run_on_ray(bench, trials, self.ray, self.jobs) if trials else iter(())
