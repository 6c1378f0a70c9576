"""Replays of the engine in processes of their own, which are ended when their time is over.

A strategy of the user's own may take any time, print, or never return.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from costopt.backtesting.executors import MIN_TRIALS_PER_PROCESS, usable_cores
from costopt.backtesting.replay import ReplayResult
from costopt.backtesting.trial import BacktestConfig, Trial
from costopt.domain.events import NodeLaunched
from costopt.domain.job import Job
from costopt.domain.market import Pool

BEGIN = """\
import os, sys
sys.path[:] = sys.argv[1].split(os.pathsep)
from costopt.backtesting.replay_process import run_here
run_here(sys.argv[2])
"""
REQUEST, RUNS = "request", "runs"


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """The outcome of a job in one replay; hours count from its start, None: it was not done.

    ``changed``: it used uninterruptible capacity. ``failure`` is why its strategy failed first, so
    that the shield decided, and empty where it never did.
    """

    job: str
    finish_h: float | None
    usd: float
    kwh: float | None
    gco2e: float | None
    interruptions: int
    changed: bool
    failure: str = ""


def run_apart(
    config: BacktestConfig, trials: Sequence[Trial], limit_s: float
) -> tuple[tuple[ReplayedRun, ...], ...]:
    """Return the outcomes of the trials that were done in ``limit_s`` seconds: of each those of its
    job and of the jobs beside it.

    That includes the start of the processes, one for each processor. None of those of a process
    are done that dies before.
    """
    ends_s = time.monotonic() + limit_s
    count = max(1, min(len(trials) // MIN_TRIALS_PER_PROCESS, usable_cores()))
    with ExitStack() as stack:
        shares = [
            stack.enter_context(_running(config, trials[first::count])) for first in range(count)
        ]
        for process, _ in shares:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, ends_s - time.monotonic()))
        return tuple(runs for _, path in shares for runs in _read_runs(path))


@contextmanager
def _running(
    config: BacktestConfig, trials: Sequence[Trial]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Yield a process that runs the trials, and the file to which it writes their outcomes."""
    with TemporaryDirectory(prefix="costopt-") as folder:
        Path(folder, REQUEST).write_bytes(pickle.dumps((config, trials)))
        command = [sys.executable, "-I", "-c", BEGIN, os.pathsep.join(sys.path), folder]
        process = subprocess.Popen(  # noqa: S603 - this program
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process, Path(folder, RUNS)
        finally:
            process.kill()
            process.communicate()


def _read_runs(path: Path) -> Iterator[tuple[ReplayedRun, ...]]:
    """Yield the runs of the whole lines: the last one may have been cut short."""
    with suppress(FileNotFoundError):
        lines = path.read_text(encoding="utf-8").split("\n")
        for line in lines[:-1]:
            yield tuple(ReplayedRun(**run) for run in json.loads(line))


def run_here(folder: str) -> None:
    """Run the trials of a request, and write a line of each; end with the process that asks."""
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    config, trials = pickle.loads(Path(folder, REQUEST).read_bytes())  # noqa: S301 - ours
    with Path(folder, RUNS).open("w", encoding="utf-8") as file:
        for trial in trials:
            result, jobs = config.rehearse(trial), (trial.window.job, *trial.window.beside)
            results = (result, *result.beside)
            runs = [_run_of(job, own) for job, own in zip(jobs, results, strict=True)]
            file.write(json.dumps([asdict(run) for run in runs]) + "\n")
            file.flush()


def _exit_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _run_of(job: Job, result: ReplayResult) -> ReplayedRun:
    summary, failure = result.summary, result.strategy_failure
    done_at = summary.finished_at
    launched = (each.event for each in result.events if isinstance(each.event, NodeLaunched))
    kinds = {Pool.parse(event.pool).capacity_type for event in launched}
    return ReplayedRun(
        job=job.name,
        finish_h=None if done_at is None else (done_at - job.start_at).total_seconds() / 3600,
        usd=summary.usd,
        kwh=summary.kwh,
        gco2e=summary.gco2e,
        interruptions=summary.interruptions,
        changed=any(kind.is_uninterruptible for kind in kinds),
        failure=failure or "",
    )
