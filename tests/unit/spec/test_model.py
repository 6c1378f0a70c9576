"""A job file with a model: what follows from it, and that what the file says comes first."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.domain.estimate import Basis
from costopt.domain.job import Job, WorkUnit
from costopt.spec import SpecFileError, load_job

NOW = datetime(2026, 5, 1, 8, tzinfo=UTC)
MODEL = "model: {params: 70e9, method: full, tokens: 2e8, sequence: 4096}\n"
HEAD = "name: tune\ndeadline: 72h\n"
TAIL = "checkpoint: {uri: c}\n"


def load(folder: Path, text: str) -> Job:
    path = folder / "job.yaml"
    path.write_text(text)
    return load_job(path, NOW)


def fields(job: Job) -> set[str]:
    return {each.field for each in job.derived}


def test_a_model_gives_work_speed_memory_and_checkpoint(tmp_path: Path) -> None:
    job = load(tmp_path, HEAD + MODEL + TAIL)
    assert (job.work.amount, job.work.unit) == (2e8, WorkUnit.TOKENS)
    assert job.throughput.flops_per_unit == pytest.approx(6 * 70e9, rel=0.1)
    assert job.throughput.mfu is not None
    assert job.checkpoint.size_gib == pytest.approx(782, rel=0.01)
    assert job.resources.memory is not None
    assert {"work", "throughput.flops_per_unit", "throughput.mfu", "checkpoint.size_gib"} <= fields(
        job
    )
    assert all(each.estimate.source for each in job.derived)
    assert Basis.MEASURED not in {each.estimate.basis for each in job.derived}


def test_what_the_file_says_comes_first(tmp_path: Path) -> None:
    text = """\
work: {amount: 1000, unit: samples}
throughput: {flops_per_unit: 1e15, mfu: {value: 0.5, gpu: A100}}
checkpoint: {uri: c, size_gib: 0}
resources: {min_gpu_memory_gib: 30}
"""
    job = load(tmp_path, HEAD + MODEL + text)
    assert job.derived == ()
    assert (job.work.amount, job.work.unit) == (1000, WorkUnit.SAMPLES)
    assert job.throughput.flops_per_unit == 1e15
    assert job.throughput.mfu is not None
    assert job.throughput.mfu.value == 0.5
    assert job.checkpoint.size_gib == 0
    assert job.resources.memory is None


def test_a_sample_is_a_sequence(tmp_path: Path) -> None:
    tokens = load(tmp_path, HEAD + MODEL + TAIL).throughput.flops_per_unit
    job = load(tmp_path, f"{HEAD}{MODEL}{TAIL}work: {{amount: 9, unit: samples}}\n")
    assert tokens is not None
    assert job.throughput.flops_per_unit == pytest.approx(4096 * tokens)


def test_gangs_that_cannot_hold_the_model_are_left_out(tmp_path: Path) -> None:
    sizes = {}
    for most in (2, 4):
        job = load(tmp_path, f"{HEAD}{MODEL}{TAIL}resources: {{max_nodes: {most}}}\n")
        machine = load_catalog().get_instance_type("aws", "p5.48xlarge")
        sizes[most] = job.gang_sizes(machine), job.resources.rejection_reason(machine)
    assert sizes[4] == ((3, 4), None)
    allowed, reason = sizes[2]
    assert allowed == ()
    assert reason is not None
    assert "17 GPUs" in reason
    long = MODEL.replace("4096", "100000")
    small = load_catalog().get_instance_type("aws", "g4dn.12xlarge")
    reason = load(tmp_path, HEAD + long + TAIL).resources.rejection_reason(small)
    assert "more than a GPU of 16 GiB holds" in (reason or "")


def test_a_measured_speed_gives_the_mfu_of_other_models(tmp_path: Path) -> None:
    points = "throughput: {points: [{gpu: H100, gpus: 32, units_per_s: 3.0e+4}]}\n"
    job = load(tmp_path, HEAD + MODEL + TAIL + points)
    assert job.throughput.mfu is None
    assert "throughput.mfu" not in fields(job)
    machine = load_catalog().get_instance_type("aws", "p4de.24xlarge")
    speed = job.gang_units_per_s(machine, 4)
    assert speed is not None
    assert speed.low < speed.value < speed.high


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        ("model: {params: 7e9, method: full, sequence: 99}\n", "model.tokens", "missing"),
        (f"{MODEL}work: {{amount: 5, unit: steps}}\n", "throughput", "missing"),
        (
            f"{MODEL}throughput: {{points: [{{gpu: H100, units_per_s: 1e9}}]}}\n",
            "throughput.points[0]",
            "value_error",
        ),
        ("model: {params: 70, method: full, sequence: 9}\n", "model.params", "greater_than_equal"),
        (
            "model: {params: 7e9, active_params: 8e9, method: full, sequence: 9, tokens: 1}\n",
            "model.active_params",
            "value_error",
        ),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, text: str, field: str, code: str) -> None:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, HEAD + TAIL + text)
    assert (field, code) in {(each.field, each.code) for each in caught.value.problems}
