"""The MFU of GPU models over that of H100, from recorded MLPerf times."""

from __future__ import annotations

import csv
import math
import os
from collections import defaultdict
from pathlib import Path

import pytest

from costopt.catalog import load_catalog, training_times
from costopt.catalog.csv_table import Row, read_table
from costopt.catalog.training_times import REFERENCE_GPU, read_relative_mfus
from costopt.domain.market import Gpu

RECORDED = {
    "A100-SXM4": "A100-SXM-80GB", "B200-SXM": "B200-SXM", "H100-SXM5": "H100-SXM-80GB",
    "H200-SXM": "H200-SXM", "L40S": "L40S",
}  # fmt: skip


def gpus() -> list[Gpu]:
    return [machine.gpu for machine in load_catalog().instance_types()]


def test_every_time_is_one_that_was_recorded() -> None:
    folder = os.environ.get("COSTOPT_DATA")
    if not folder:
        pytest.skip("COSTOPT_DATA names no folder with the recorded facts")
    with (Path(folder) / "energy/mlperf_8gpu_ttt_by_gpu.csv").open(newline="") as file:
        medians = {
            (r["benchmark"], r["gpu"], r["round"]): float(r["median"]) for r in csv.DictReader(file)
        }
    for row in read_table("training_times"):
        key = row["benchmark"], RECORDED[row["gpu_model"]], row["round"]
        assert float(row["minutes"]) == medians[key]


def test_the_factor_is_the_mean_ratio_of_times_and_peaks() -> None:
    b200 = load_catalog().find(gpu="B200")[0].gpu
    ratios = (5.37 / 3.49, 27.48 / 9.68, 36.02 / 22.51, 32.38 / 13.55)
    factor = math.prod(ratios) ** 0.25 * 989 / 2250
    assert b200.relative_mfu is not None
    assert b200.relative_mfu.value == pytest.approx(factor)
    assert b200.relative_mfu.low < factor < b200.relative_mfu.high
    assert load_catalog().find(gpu="T4")[0].gpu.relative_mfu is None


def test_nine_in_ten_benchmarks_left_out_lie_in_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cross-validation: the estimate from a model's other benchmarks holds the one left out."""
    rows = read_table("training_times")
    by_model: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        by_model[row["gpu_model"]][row["benchmark"]] = float(row["minutes"])
    peak = {model: next(g for g in gpus() if g.matches_name(model)) for model in by_model}
    inside = []
    for model, times in by_model.items():
        for benchmark in times if model != REFERENCE_GPU else ():
            others = tuple(r for r in rows if not _is(r, model, benchmark))

            def table(_: str, rest: tuple[Row, ...] = others) -> tuple[Row, ...]:
                return rest

            monkeypatch.setattr(training_times, "read_table", table)
            found = read_relative_mfus(gpus())[peak[model].model]
            ratio = by_model[REFERENCE_GPU][benchmark] / times[benchmark]
            ratio *= peak[REFERENCE_GPU].peak_tflops / peak[model].peak_tflops
            inside.append(found.low <= ratio <= found.high)
    assert len(inside) == 21
    assert sum(inside) >= 19


def _is(row: Row, model: str, benchmark: str) -> bool:
    return (row["gpu_model"], row["benchmark"]) == (model, benchmark)
