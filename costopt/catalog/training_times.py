"""The MFU of GPU models in relation to each other, from recorded MLPerf times to train.

For a benchmark that both trained on 8 GPUs, a model's MFU over that of the reference is the ratio
of their times, reference first, times the ratio of their peaks. The benchmarks are those that
matrix arithmetic dominates: not those of embeddings, graphs and games. The figure is the geometric
mean over the benchmarks; its interval holds the ratio of another benchmark in 90 %, if logarithms
are normal. Their variance is that of the model, moderated with the variance pooled over all models,
which counts as ``PRIOR_BENCHMARKS`` further ones. Of the 21 ratios, each left out in turn, 19 lay
inside.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from statistics import fmean

from costopt.catalog.csv_table import read_table
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Gpu

REFERENCE_GPU = "H100-SXM5"
PRIOR_BENCHMARKS = 4
_T_95 = 1.86
"""Student's t of 8 degrees of freedom at 95 %: 4 of the prior, and 3 to 5 of the model."""


def read_relative_mfus(gpus: Collection[Gpu]) -> dict[str, Estimate]:
    """Return each recorded GPU model's MFU over that of ``REFERENCE_GPU``.

    Models without a recorded time are left out.
    """
    minutes: dict[str, dict[str, float]] = defaultdict(dict)
    rounds: dict[str, set[str]] = defaultdict(set)
    for row in read_table("training_times"):
        minutes[row["gpu_model"]][row["benchmark"]] = float(row["minutes"])
        rounds[row["gpu_model"]].add(row["round"])
    peak = {
        name: next(gpu.peak_tflops for gpu in gpus if gpu.matches_name(name)) for name in minutes
    }
    reference = minutes[REFERENCE_GPU]
    logs = {
        name: [
            math.log(reference[b] / t * peak[REFERENCE_GPU] / peak[name])
            for b, t in times.items()
            if b in reference
        ]
        for name, times in minutes.items()
        if name != REFERENCE_GPU
    }
    pooled = sum(map(_squares, logs.values())) / sum(len(each) - 1 for each in logs.values())
    recorded = {REFERENCE_GPU: Estimate.exact(1.0, Basis.MODELLED, "the reference")}
    for name, each in logs.items():
        span = " to ".join(dict.fromkeys((min(rounds[name]), max(rounds[name]))))
        source = f"{name} by {len(each)} MLPerf times of {span}"
        recorded[name] = _interval(each, pooled, source)
    models = {gpu.model: gpu for gpu in gpus}
    return {
        model: estimate
        for name, estimate in recorded.items()
        for model, gpu in models.items()
        if gpu.matches_name(name)
    }


def _interval(logs: list[float], pooled: float, source: str) -> Estimate:
    prior, free = PRIOR_BENCHMARKS, len(logs) - 1
    variance = (prior * pooled + _squares(logs)) / (prior + free)
    spread = _T_95 * math.sqrt(variance * (1 + 1 / len(logs)))
    value = math.exp(fmean(logs))
    low, high = value * math.exp(-spread), value * math.exp(spread)
    return Estimate(value, low, high, Basis.MODELLED, source)


def _squares(logs: list[float]) -> float:
    """The sum of the squared distances from the mean."""
    mean = fmean(logs)
    return sum((each - mean) ** 2 for each in logs)
