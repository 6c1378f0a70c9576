"""Pollux's own simulator, from a folder of the user's: petuum/adaptdl, branch osdi21-artifact.

Nothing of it is part of this project. It was written for older libraries: what they lack now is
added before it is imported, and what only costs time is computed once. Neither changes a figure:
its own policies still give the completion times of its authors, to the digit.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas

from costopt.domain.errors import CostoptError

NODES, NODE_GPUS = 16, 4
ROUND_S = 60
PYMOO = (
    "pymoo", "pymoo.model", "pymoo.model.crossover", "pymoo.model.mutation", "pymoo.model.problem",
    "pymoo.model.repair", "pymoo.optimize", "pymoo.algorithms", "pymoo.algorithms.nsga2",
    "pymoo.operators", "pymoo.operators.crossover", "pymoo.operators.crossover.util", "pymoo.util",
    "pymoo.util.nds", "pymoo.util.nds.non_dominated_sorting",
)  # fmt: skip
"""Imported by its policy Pollux, which is not run here: its published results are quoted."""

IMAGINARY_STEP = 1e-30


class _Absent(ModuleType):
    """A module that is not installed and not called: its classes are empty."""

    __path__: list[str] = []  # noqa: RUF012 - what makes it a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _fit_error(
    parameters: Any, nodes: Any, gpus: Any, batch: Any, accum_s: Any, optim_s: Any
) -> Any:
    """The objective of its fits, and the gradient, exact by a step along the imaginary axis.

    Its own code differentiates the same terms one after the other, some twenty times slower.
    """
    moved = parameters[:, None] + 1j * IMAGINARY_STEP * np.eye(len(parameters))
    alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma = moved[:, :, None]
    several = [nodes > 1, (nodes <= 1) & (gpus > 1), gpus <= 1]
    alpha = sum(each * one for each, one in zip((alpha_n, alpha_r, 1e-8), several, strict=True))
    beta = sum(each * one for each, one in zip((beta_n, beta_r, 1e-8), several, strict=True))
    accum = np.log(alpha_c + beta_c * batch)
    network = np.log(alpha + beta * np.maximum(gpus - 2, 1e-8))
    optim = np.log(np.exp(gamma * accum) + np.exp(gamma * network)) / gamma
    errors = sum(
        np.sqrt(((found - np.log(true)) ** 2).mean(axis=1))
        for found, true in ((accum, accum_s), (optim, optim_s))
    )
    slopes = (moved[3] / moved[2]) ** 2 + (moved[5] / moved[4]) ** 2
    total = errors + 1e-3 * (moved[6] - 1) ** 2 + 1e-2 * slopes
    return float(total[0].real), total.imag / IMAGINARY_STEP


class _LazyFit:
    """A job's fitted speeds, which are fitted where they are read, once for the same profile."""

    def __init__(self, fit: Any, known: dict[tuple[bytes, ...], tuple[float, ...]], profile: Any):
        self._fit, self._known, self._profile = fit, known, profile

    def __iter__(self) -> Iterator[float]:
        key = tuple(array.tobytes() for array in self._profile)
        if key not in self._known:
            self._known[key] = tuple(self._fit(*self._profile))
        return iter(self._known[key])


def load_simulator(folder: Path) -> ModuleType:
    """Return the module ``simulator``. Raise CostoptError where the folder does not hold it."""
    if not (folder / "simulator.py").is_file() or not (folder / "workloads").is_dir():
        raise CostoptError(
            f"{folder} is not the simulator of Pollux",
            hint="give the folder simulator/ of github.com/petuum/adaptdl, branch osdi21-artifact",
            code="not_found",
        )
    for name in PYMOO:
        sys.modules.setdefault(name, _Absent(name))
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    pandas.DataFrame.append = _append  # type: ignore[attr-defined]
    autograd = ModuleType("autograd")
    autograd.numpy, autograd.grad = np, lambda _: True  # type: ignore[attr-defined]
    sys.modules["autograd"] = autograd
    sys.path.insert(0, str(folder))
    # Its fits are of seven parameters: threads would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    simulator: Any
    applications: Any
    try:
        simulator = importlib.import_module("simulator")
        applications = importlib.import_module("applications")
        importlib.import_module("goodput")._obj_fn = _fit_error  # type: ignore[attr-defined]
    except ModuleNotFoundError as error:
        raise CostoptError(
            f"the simulator of Pollux needs {error.name}",
            hint="pip install scipy",
            code="missing_extra",
        ) from error
    fit = simulator.fit_perf_params
    fits: dict[tuple[bytes, ...], tuple[float, ...]] = {}
    simulator.fit_perf_params = lambda *profile: _LazyFit(fit, fits, profile)
    build = applications.LinearNDInterpolator
    built: dict[tuple[bytes, bytes], Any] = {}

    def interpolator(points: Any, values: Any) -> Any:
        key = (points.tobytes(), values.tobytes())
        if key not in built:
            built[key] = build(points, values)
        return built[key]

    applications.LinearNDInterpolator = interpolator
    module: ModuleType = simulator
    return module


def completion_times(simulator: ModuleType, workload: Path, policy: Any) -> np.ndarray[Any, Any]:
    """Return each job's seconds from submission to end on 16 nodes of 4 GPUs.

    ``policy`` is one of the simulator's; where it has ``attach``, it is shown the cluster first.
    """
    cluster = simulator.Cluster(pandas.read_csv(workload), policy, NODES, num_gpus=NODE_GPUS)
    if hasattr(policy, "attach"):
        policy.attach(cluster)
    with contextlib.redirect_stdout(io.StringIO()):
        while not cluster.all_complete():
            cluster.step(ROUND_S)
            del cluster.logs[:-1]
    return np.array(list(cluster.get_jcts().values()), dtype=np.float64)


def tiresias(simulator: ModuleType) -> Any:
    """Return the simulator's own policy Tiresias, with the clock of the cluster it is shown."""
    clock: dict[str, Any] = {}
    policy = simulator.TiresiasPolicy(lambda: clock["cluster"].current_time)
    policy.attach = lambda cluster: clock.update(cluster=cluster)
    return policy


def _append(frame: Any, other: Any, ignore_index: bool = False) -> Any:
    """What pandas had as DataFrame.append."""
    return pandas.concat([frame, other], ignore_index=ignore_index)
