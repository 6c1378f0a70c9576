"""Trials on a Ray cluster; needs the extra ``ray``, here and on every node of the cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from types import ModuleType

from costopt.domain.errors import CostoptError, MissingExtraError, install_hint
from costopt.replay.score import Score
from costopt.replay.trial import BacktestConfig, Trial

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
    ray = require_ray()
    _join(ray, address, jobs)
    try:
        shared = ray.put(bench)
        run = ray.remote(_score)
        waiting = {run.remote(shared, trial): trial for trial in trials}
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            for reference in done:
                yield waiting.pop(reference), ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise CostoptError(f"Ray lost a trial: {error}", hint="run the backtest again") from error
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
    """Raises OSError where nobody listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=REPLY_TIMEOUT_S).close()


def _score(bench: BacktestConfig, trial: Trial) -> Score:
    return bench.score(trial)
