"""Speed as people know it: how long a unit of work took on GPUs that were measured."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.domain.estimate import Basis
from costopt.domain.job import Job, WorkAmount, WorkUnit
from costopt.domain.market import InstanceType
from costopt.domain.throughput import ThroughputSample
from costopt.spec import SpecFileError, load_job, load_unmeasured_job

NOW = datetime(2026, 5, 1, tzinfo=UTC)
TAKES = "takes: {per: epoch, time: 40m, on: 1xA100}\n"
TAIL = "name: resnet\ndeadline: 2d\ncheckpoint: ckpt\n"


def load(folder: Path, text: str) -> Job:
    path = folder / "job.yaml"
    path.write_text(text + TAIL)
    return load_job(path, NOW)


def machine(name: str, provider: str = "aws") -> InstanceType:
    return load_catalog().get_instance_type(provider, name)


A100, H100 = machine("a2-highgpu-1g", "gcp"), machine("a3-highgpu-1g", "gcp")
EIGHT_A100, EIGHT_H100, T4 = machine("p4d.24xlarge"), machine("p5.48xlarge"), machine("g4dn.xlarge")


@pytest.mark.parametrize(
    ("text", "work", "units_per_s"),
    [
        (f"work: 10 epochs\n{TAKES}", (10, WorkUnit.EPOCHS), 1 / 2400),
        (f"work: 1 epoch\n{TAKES}", (1, WorkUnit.EPOCHS), 1 / 2400),
        (f"work: {{amount: 10, unit: epochs}}\n{TAKES}", (10, WorkUnit.EPOCHS), 1 / 2400),
        (
            "work: 50k steps\ntakes: {per: 1000 steps, time: 5m, on: A100:1}\n",
            (50_000, WorkUnit.STEPS),
            1000 / 300,
        ),
        ("work: 9 batches\ntakes: {per: iteration, time: 2s, on: A100}\n",
         (9, WorkUnit.STEPS), 0.5),
        ("work: 2B tokens\ntakes: {per: 1M tokens, time: 50, on: A100}\n",
         (2e9, WorkUnit.TOKENS), 1e6 / 50),
        ("work: 40 tasks\ntakes: {per: task, time: 30m, on: A100}\n",
         (40, WorkUnit.TASKS), 1 / 1800),
        ("work: 10 epochs\ntakes: {per: job, time: 5h, on: A100}\n",
         (10, WorkUnit.EPOCHS), 10 / 18_000),
        ("takes: {per: whole job, time: 5h, on: A100}\n", (100, WorkUnit.PERCENT), 100 / 18_000),
    ],
)  # fmt: skip
def test_a_unit_and_its_time_are_a_measured_point(
    text: str, work: tuple[float, WorkUnit], units_per_s: float, tmp_path: Path
) -> None:
    job = load(tmp_path, text)
    assert job.work == WorkAmount(*work)
    speed = job.gang_units_per_s(A100, 1)
    assert speed is not None
    assert speed.value == pytest.approx(units_per_s)
    assert speed.basis is Basis.MEASURED


def test_a_time_is_a_point_beside_others(tmp_path: Path) -> None:
    points = "throughput: {points: [{gpu: A100, gpus: 8, units_per_s: 0.003}]}\n"
    job = load(tmp_path, f"work: 10 epochs\n{TAKES}{points}")
    assert job.throughput.points == (
        ThroughputSample("A100", 8, 0.003),
        ThroughputSample("A100", 1, 1 / 2400),
    )
    assert job.resources.max_gpus == 8


def test_a_point_of_the_same_gang_goes_before_the_time(tmp_path: Path) -> None:
    point = "throughput: {points: [{gpu: A100-SXM4-40GB, gpus: 1, units_per_s: 5e-4}]}\n"
    job = load(tmp_path, f"work: 10 epochs\n{TAKES}{point}")
    assert job.throughput.points == (ThroughputSample("A100-SXM4-40GB", 1, 5e-4),)


def test_a_job_that_is_to_be_measured_may_say_nothing_of_its_speed(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"work: 10 epochs\n{TAIL}")
    with pytest.raises(SpecFileError, match="costopt calibrate"):
        load_job(path, NOW)
    job = load_unmeasured_job(path, NOW)
    assert job.resources.rejection_reason(T4) is None
    assert job.gang_units_per_s(T4, 1) is not None


POINT = "throughput: {points: [{gpu: A100, units_per_s: 4e-4}]}\n"


@pytest.mark.parametrize("speed", [TAKES, POINT])
def test_other_models_follow_from_peaks_and_training_times_without_flops(
    speed: str, tmp_path: Path
) -> None:
    job = load(tmp_path, f"work: 10 epochs\n{speed}")
    measured, known = job.gang_units_per_s(A100, 1), job.gang_units_per_s(H100, 1)
    assert measured is not None
    assert known is not None
    # 989 TFLOPS over 312, and an MFU that is by MLPerf 1 / 1.43 of the A100's (docs/models.md).
    ratio = 989 / 312 / 1.43
    assert known.value / measured.value == pytest.approx(ratio, rel=0.01)
    assert known.low / known.value == pytest.approx(0.94 / 1.43, rel=0.01)
    assert known.basis is Basis.MODELLED
    unrecorded = job.gang_units_per_s(T4, 1)
    assert unrecorded is not None
    assert unrecorded.value / measured.value == pytest.approx(65 / 312)
    assert unrecorded.low / unrecorded.value == pytest.approx(0.5)


@pytest.mark.parametrize("flops", ["1e10", "1e15", "3e17"])
def test_flops_change_no_speed_that_was_measured(flops: str, tmp_path: Path) -> None:
    points = f"points: [{{gpu: A100, units_per_s: 4e-4}}], flops_per_unit: {flops}"
    job = load(tmp_path, f"work: 10 epochs\nthroughput: {{{points}}}\n")
    known, measured = job.gang_units_per_s(H100, 1), job.gang_units_per_s(A100, 1)
    assert known is not None
    assert measured is not None
    assert known.value / measured.value == pytest.approx(989 / 312 / 1.43, rel=0.01)


def test_no_gang_is_larger_than_the_measured_one_unless_the_file_says_so(tmp_path: Path) -> None:
    text = f"work: 10 epochs\n{TAKES}"
    assert load(tmp_path, text).resources.rejection_reason(A100) is None
    assert load(tmp_path, text).resources.rejection_reason(EIGHT_A100) is not None
    for said in ("max_gpus: 8", "gpus: 8", "gpu: A100:8", "instance_types: [p4d.24xlarge]"):
        job = load(tmp_path, f"{text}resources: {{{said}}}\n")
        assert job.resources.rejection_reason(EIGHT_A100) is None
    job = load(tmp_path, f"{text}resources: {{max_gpus: 8}}\n")
    speed = job.gang_units_per_s(EIGHT_A100, 1)
    assert speed is not None
    assert speed.low < speed.value * 0.95
    # Three doublings on NVLink: 2 × 0.98 each, 0.95 at the low end.
    assert speed.value == pytest.approx((2 * 0.98) ** 3 / 2400)
    assert speed.low == pytest.approx((2 * 0.95) ** 3 / 2400)


def test_a_gang_of_many_nodes_may_be_as_large_as_it_was_measured(tmp_path: Path) -> None:
    text = "work: 10 epochs\ntakes: {per: epoch, time: 1h, on: 64xH100}\n"
    resources = load(tmp_path, text).resources
    assert (resources.max_gpus, resources.max_nodes) == (64, 8)
    assert resources.node_counts(EIGHT_H100)[-1] == 8


def test_no_gpu_has_less_memory_than_the_measured_one_unless_the_file_says_so(
    tmp_path: Path,
) -> None:
    text = f"work: 10 epochs\n{TAKES}"
    job = load(tmp_path, text)
    assert "16 GiB" in (job.resources.rejection_reason(T4) or "")
    assert {each.field: each.estimate.value for each in job.derived} == {
        "resources.max_gpus": 1,
        "resources.min_gpu_memory_gib": 40,
    }
    for said in ("min_gpu_memory_gib: 16", "gpu_models: [T4]"):
        job = load(tmp_path, f"{text}resources: {{{said}}}\n")
        assert job.resources.rejection_reason(T4) is None


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        (f"work: 10 steps\n{TAKES}", "takes.per", "value_error"),
        ("work: 10 epochs\ntakes: {per: epoch, time: 0m, on: A100}\n", "takes.time", "value_error"),
        ("work: 10 epochs\ntakes: {per: epoch, time: 1m, on: A10O}\n", "takes.on", "unknown_name"),
        ("work: 10 epochs\ntakes: {per: epoc, time: 1m, on: A100}\n", "takes.per",
         "string_pattern_mismatch"),
        ("work: 10 epochs\ntakes: {per: epoch, time: 1m, on: 0xA100}\n", "takes.on",
         "string_pattern_mismatch"),
        (TAKES, "work", "missing"),
        (f"work: 10\n{TAKES}", "work", "work"),
        (f"work: ten epochs\n{TAKES}", "work", "work"),
        (f"work: 0 epochs\n{TAKES}", "work", "greater_than"),
        (f"array: {{tasks: 3, duration: 1m, parallel: 2}}\nrun: x\n{TAKES}", "takes",
         "value_error"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_place(
    text: str, place: str, code: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, text)
    assert (place, code) in {(each.field, each.code) for each in caught.value.problems}
