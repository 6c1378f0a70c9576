"""Replays of the engine in a process of their own, which is ended when its time is over.

A strategy of the user's own may take any time, print, or never return.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from costopt.backtesting.replay import ReplayResult
from costopt.backtesting.trial import BacktestConfig, Trial
from costopt.domain.events import NodeLaunched
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
    """The outcome of one replay; hours count from the job's start, None: it was not done.

    ``changed``: it used uninterruptible capacity. ``failure`` is why its strategy failed first, so
    that the shield decided, and empty where it never did.
    """

    finish_h: float | None
    usd: float
    kwh: float | None
    gco2e: float | None
    interruptions: int
    changed: bool
    failure: str = ""


def run_apart(
    config: BacktestConfig, trials: Sequence[Trial], limit_s: float
) -> tuple[ReplayedRun, ...]:
    """Return the outcomes of the trials that were done in ``limit_s`` seconds, in their order.

    That includes the process's start. None is done where the process dies.
    """
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
            with suppress(subprocess.TimeoutExpired):
                process.wait(limit_s)
        finally:
            process.kill()
            process.communicate()
        return tuple(_read_runs(Path(folder, RUNS)))


def _read_runs(path: Path) -> Iterator[ReplayedRun]:
    """Yield the runs of the whole lines: the last one may have been cut short."""
    with suppress(FileNotFoundError):
        lines = path.read_text(encoding="utf-8").split("\n")
        yield from (ReplayedRun(**json.loads(line)) for line in lines[:-1])


def run_here(folder: str) -> None:
    """Run the trials of a request, and write a line of each; end with the process that asks."""
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    config, trials = pickle.loads(Path(folder, REQUEST).read_bytes())  # noqa: S301 - ours
    with Path(folder, RUNS).open("w", encoding="utf-8") as file:
        for trial in trials:
            run = _run_of(config.rehearse(trial), trial.window.job.start_at)
            file.write(json.dumps(asdict(run)) + "\n")
            file.flush()


def _exit_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _run_of(result: ReplayResult, start_at: datetime) -> ReplayedRun:
    summary, failure = result.summary, result.strategy_failure
    done_at = summary.finished_at
    launched = (each.event for each in result.events if isinstance(each.event, NodeLaunched))
    kinds = {Pool.parse(event.pool).capacity_type for event in launched}
    return ReplayedRun(
        finish_h=None if done_at is None else (done_at - start_at).total_seconds() / 3600,
        usd=summary.usd,
        kwh=summary.kwh,
        gco2e=summary.gco2e,
        interruptions=summary.interruptions,
        changed=any(kind.is_uninterruptible for kind in kinds),
        failure=failure or "",
    )
