"""Where the trials of a backtest run: in this process, in processes of this machine, or on Ray.

A Ray cluster needs the extra ``ray``, here and on every node of the cluster.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from costopt.backtesting.backtest import Runner
from costopt.backtesting.trial import BacktestConfig, Score, Trial
from costopt.controller.child import exit_with_parent
from costopt.domain.errors import CostoptError, MissingExtraError, install_hint

Task = TypeVar("Task")
Item = TypeVar("Item")
Result = TypeVar("Result")

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

        require_ray()
        return self._on_ray

    def _in_processes(
        self, bench: BacktestConfig, trials: Sequence[Trial]
    ) -> Iterator[tuple[Trial, Score]]:
        worth = min(usable_cores(), len(trials) // MIN_TRIALS_PER_PROCESS)
        return run_in_processes(bench, trials, worth if self.jobs is None else self.jobs)

    def _on_ray(
        self, bench: BacktestConfig, trials: Sequence[Trial]
    ) -> Iterator[tuple[Trial, Score]]:

        assert self.ray is not None
        return run_on_ray(bench, trials, self.ray, self.jobs) if trials else iter(())


def usable_cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


BATCH_S = 1.0
"""What a batch of trials should take: long beside the milliseconds of sending it, and no more than
this is lost when a backtest is killed."""

BATCHES_AHEAD = 2
"""Batches under way for each worker; the rest waits, so that memory does not grow with it."""


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """Scores of trials in their order, and how long they took."""

    scores: tuple[Score, ...]
    seconds: float


def _score_batch(bench: BacktestConfig, trials: Sequence[Trial]) -> ScoredBatch:
    began_s = time.perf_counter()
    scores = tuple(bench.score(trial) for trial in trials)
    return ScoredBatch(scores, time.perf_counter() - began_s)


def _in_batches(
    trials: Sequence[Trial],
    workers: int,
    submit: Callable[[Sequence[Trial]], Task],
    collect: Callable[[Collection[Task]], Iterator[tuple[Task, ScoredBatch]]],
) -> Iterator[tuple[Trial, Score]]:
    """Scores as they come. Batches begin with one trial, and are then as long as ``BATCH_S``.

    Towards the end they are shorter, for no worker to wait long for the last. ``collect`` returns
    those that are done, one at least.
    """
    waiting: dict[Task, Sequence[Trial]] = {}
    begun, scored, seconds = 0, 0, 0.0
    while begun < len(trials) or waiting:
        while begun < len(trials) and len(waiting) < BATCHES_AHEAD * workers:
            size = int(BATCH_S * scored / seconds) if seconds else 1
            share = (len(trials) - begun) // (BATCHES_AHEAD * workers)
            batch = trials[begun : begun + max(1, min(size, share))]
            waiting[submit(batch)] = batch
            begun += len(batch)
        for task, result in collect(waiting.keys()):
            batch = waiting.pop(task)
            scored, seconds = scored + len(batch), seconds + result.seconds
            yield from zip(batch, result.scores, strict=True)


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
    _check_main()
    context = multiprocessing.get_context("spawn")
    with _stored(bench) as path, ProcessPoolExecutor(jobs, context, _begin, (path,)) as pool:
        try:
            yield from _in_batches(
                trials, jobs, lambda batch: pool.submit(_score_here, batch), _collect
            )
        except BrokenProcessPool as error:
            raise CostoptError(
                "a process that replays died",
                hint="it may have run out of memory: use fewer processes (--jobs); a script calls "
                'backtest under if __name__ == "__main__"; with a file of results (--results), '
                "the scores so far are kept",
                code="process_died",
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _stored(bench: BacktestConfig) -> Iterator[Path]:
    """Yield a file that holds the bench. The pipe to a process would hold up to 64 KiB: the write
    of more would never return where the process dies before it reads."""
    with tempfile.TemporaryDirectory(prefix="costopt-") as folder:
        path = Path(folder) / "bench"
        path.write_bytes(pickle.dumps(bench))
        yield path


def _check_main() -> None:
    """Raise CostoptError in a process that runs the caller's script again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise CostoptError(
            "a process that replays would begin the backtest again",
            hint='call backtest under if __name__ == "__main__"',
            code="not_guarded",
        )


def _begin(path: Path) -> None:
    global _bench  # noqa: PLW0603 - a process's own bench, sent once and not with every trial
    _bench = pickle.loads(path.read_bytes())  # noqa: S301 - the parent wrote it, for its own eyes
    exit_with_parent()


def _score_here(trials: Sequence[Trial]) -> ScoredBatch:
    assert _bench is not None
    return _score_batch(_bench, trials)


def _collect(
    futures: Collection[Future[ScoredBatch]],
) -> Iterator[tuple[Future[ScoredBatch], ScoredBatch]]:
    done, _ = wait(futures, return_when=FIRST_COMPLETED)
    for future in done:
        yield future, future.result()


LOCAL = "local"
"""The address that starts Ray on this machine, for as long as the backtest runs."""

REPLY_TIMEOUT_S = 10.0
"""How long the head of a cluster may take to accept a connection."""


def require_ray() -> ModuleType:
    """The library. Raises MissingExtraError."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("Ray is not installed", hint=install_hint("ray")) from error
    module: ModuleType = ray
    return module


def run_on_ray(
    bench: BacktestConfig, trials: Sequence[Trial], address: str, jobs: int | None = None
) -> Iterator[tuple[Trial, Score]]:
    """Scores as they come from the cluster at ``address``, or from ``local`` processes of Ray.

    ``jobs`` CPUs of this machine are used where it is local. Raises MissingExtraError, and
    CostoptError where the cluster cannot be reached or a trial is lost for good.
    """
    with _cluster(address, jobs) as ray:
        shared, run = ray.put(bench), ray.remote(_score_batch)
        workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

        def collect(waiting: Collection[object]) -> Iterator[tuple[object, ScoredBatch]]:
            done, _ = ray.wait(list(waiting), num_returns=1)
            for reference in done:
                yield reference, ray.get(reference)

        yield from _in_batches(trials, workers, lambda batch: run.remote(shared, batch), collect)


def map_on_ray(
    function: Callable[[Item], Result], items: Sequence[Item], address: str
) -> list[Result]:
    """Return ``function`` of each item, from the cluster at ``address``. Raises as run_on_ray."""
    with _cluster(address, None) as ray:
        run = ray.remote(_call)
        shared = ray.put(function)
        results: list[Result] = ray.get([run.remote(shared, item) for item in items])
        return results


def _call(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)


@contextmanager
def _cluster(address: str, jobs: int | None) -> Iterator[ModuleType]:
    ray = require_ray()
    _join(ray, address, jobs)
    try:
        yield ray
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise CostoptError(f"Ray lost a task: {error}", hint="run it again") from error
    finally:
        ray.shutdown()


def _join(ray: ModuleType, address: str, jobs: int | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    here = {"num_cpus": jobs, "include_dashboard": False} if address == LOCAL else {}
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **here)
    except (OSError, RuntimeError, ValueError) as error:
        raise CostoptError(
            f"no Ray cluster answers at {address}: {error}",
            hint="give the address of a running one, as in ray://head:10001, or 'local'",
            code="no_cluster",
        ) from error


def _knock(address: str) -> None:
    """Raise OSError if no server listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=REPLY_TIMEOUT_S).close()
