"""Job files: what they mean, and what is refused where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.job import Budget, Job, Phase, ThroughputSample, WorkUnit
from costopt.spec import SpecFileError, job_schema, load_job

NOW = datetime(2026, 5, 1, 8, tzinfo=UTC)

SMALLEST = """\
name: char-gpt
work: {amount: 400, unit: steps}
deadline: 72h
throughput:
  points:
    - {gpu: T4, gpus: 2, units_per_s: 9.5}
checkpoint: {uri: checkpoints}
"""


def load(tmp_path: Path, text: str) -> Job:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return load_job(path, NOW)


def refusal(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, text)
    prefix = f"{tmp_path / 'job.yaml'}:"
    return [str(problem).removeprefix(prefix) for problem in caught.value.problems]


def with_line(name: str, line: str) -> str:
    """SMALLEST with the line of ``name`` replaced, or ``line`` added."""
    lines = [line if old.startswith(f"{name}:") else old for old in SMALLEST.splitlines()]
    return "\n".join(lines if line in lines else [*lines, line]) + "\n"


def test_the_smallest_job_has_the_stated_defaults(tmp_path: Path) -> None:
    job = load(tmp_path, SMALLEST)
    assert (job.work.amount, job.work.unit) == (400, WorkUnit.STEPS)
    assert (job.start_at, job.deadline_at) == (NOW, NOW + timedelta(hours=72))
    assert job.phases == (Phase("all", 1.0, 1, 1),)
    assert job.throughput.points == (ThroughputSample("T4", 2, 9.5),)
    assert job.checkpoint.uri == str(tmp_path / "checkpoints")
    assert job.checkpoint.interval_s is None
    assert job.workdir == str(tmp_path)
    assert job.budget.max_usd is None
    assert (job.startup_s, job.overhead_s) == (120, 180)


def test_a_full_job(tmp_path: Path) -> None:
    job = load(
        tmp_path,
        """\
kind: job
version: 1
name: big
tenant: team-a
work: {amount: 3e11, unit: tokens}
start: 2026-05-02T10:00:00+02:00
deadline: 2026-05-04T08:00:00Z
phases:
  - {name: warm, share: 0.1, max_nodes: 2}
  - {name: main, share: 0.9, min_nodes: 2, may_pause: false}
resources: {gpu_models: [h100, A100], min_nodes: 1, max_nodes: 4, min_gpus: 8, min_memory_gib: 64}
throughput:
  points:
    - {gpu: H100, nodes: 2, gpus_per_node: 8, units_per_s: 1e6}
  flops_per_unit: 4.2e10
  mfu: 0.4
  scaling_efficiency: 0.95
checkpoint: {uri: "s3://bucket/big", size_gib: 14, save: 20s, restore: 2m, interval: 10m}
budget: {usd: 5000, kwh: 900, usd_per_month: 800, usd_per_hour: 40}
run: torchrun train.py --name 'a b'
env: {EPOCHS: 3, MODE: fast}
workdir: ../code
data: {uri: "s3://data/x", size_gib: 200, region: aws/us-east-1}
startup: 3m
""",
    )
    assert job.start_at == datetime(2026, 5, 2, 8, tzinfo=UTC)
    assert job.deadline_at == datetime(2026, 5, 4, 8, tzinfo=UTC)
    assert job.phases == (Phase("warm", 0.1, 1, 2, True), Phase("main", 0.9, 2, 4, False))
    assert job.throughput.points == (ThroughputSample("H100", 16, 1e6),)
    assert job.checkpoint.uri == "s3://bucket/big"
    assert (job.checkpoint.save_s, job.checkpoint.interval_s) == (20, 600)
    assert job.budget == Budget(5000, 900, 800, 40)
    assert job.run == ("torchrun", "train.py", "--name", "a b")
    assert job.env == (("EPOCHS", "3"), ("MODE", "fast"))
    assert job.workdir == str(tmp_path.parent / "code")
    assert job.data is not None
    assert job.data.region == "aws/us-east-1"
    assert (job.startup_s, job.tenant) == (180, "team-a")


def test_a_file_uri_becomes_a_path(tmp_path: Path) -> None:
    job = load(tmp_path, with_line("checkpoint", "checkpoint: {uri: file:///data/ckpt}"))
    assert job.checkpoint.uri == "/data/ckpt"


def test_a_number_is_a_duration_in_seconds(tmp_path: Path) -> None:
    job = load(tmp_path, with_line("deadline", "deadline: 72"))
    assert job.deadline_at == NOW + timedelta(seconds=72)


def test_gangs_may_grow_to_the_gpus_asked_for(tmp_path: Path) -> None:
    job = load(tmp_path, with_line("resources", "resources: {min_gpus: 4, max_gpus: 16}"))
    assert job.resources.max_nodes == 16


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("name", "name: a b", "1:7: name: expected letters, digits"),
        ("work", "work: {amount: -1, unit: steps}", "2:16: work.amount: expected greater than 0"),
        ("work", "work: {amount: .nan, unit: steps}", "2:16: work.amount: expected a finite"),
        ("work", "work: {amount: .inf, unit: steps}", "2:16: work.amount: expected a finite"),
        ("work", "work: {amount: 1e99, unit: steps}", "2:16: work.amount: expected a size"),
        ("work", "work: {amount: '4', unit: steps}", "2:16: work.amount: expected a valid number"),
        ("work", "work: {amount: true, unit: steps}", "2:16: work.amount: expected a valid number"),
        ("work", "work: {amount: 4, unit: step}", "2:25: work.unit: 'step' is not allowed; expected"
         " 'steps', 'samples' or 'tokens'; did you mean 'steps'?"),
        ("work", "work: {amount: 4}", "2:7: work.unit: is missing: in what it is counted"),
        ("work", "work: 4", "2:7: work: expected a mapping of fields to values, got 4"),
        ("work", "work:", "2:6: work: expected a mapping of fields to values, got nothing"),
        ("deadline", "deadline: 2026-05-01T07:00:00Z", "3:11: deadline: 2026-05-01T07:00:00Z is in"
         " the past (now is 2026-05-01T08:00:00Z)"),
        ("deadline", "deadline: 2026-06-01T07:00:00", "3:11: deadline: the time zone is missing"),
        ("deadline", "deadline: soon", "3:11: deadline: expected a duration such as 90m"),
        ("deadline", "deadline: 0", "3:11: deadline: 0.000000s is in the past"),
        ("deadline", "deadline: 9999-12-31T23:59:59Z", "3:11: deadline: expected at most ten"),
        ("start", "start: 9999-12-31T23:59:59Z", "8:8: start: expected at most ten years"),
        ("checkpoint", "checkpoint: {uri: c, region: aws/us-esat-1}", "7:30: checkpoint.region: the"
         " region 'aws/us-esat-1' is not in the catalogue; did you mean"),
        ("data", "data: {uri: d, region: gcp/us-central9}", "8:24: data.region: the region"
         " 'gcp/us-central9' is not in the catalogue; did you mean"),
        ("run", "run: []", "8:6: run: expected at least one entry"),
        ("run", "run: ' '", "8:6: run: expected at least one entry"),
        ("start", "start: 2026-04-01T00:00", "8:8: start: the time zone is missing"),
        ("checkpoint", "checkpoint: {uri: ftp://x}", "7:19: checkpoint.uri: the scheme 'ftp' is"
         " not known; expected a path, file://, s3://, gs://"),
        ("checkpoint", "checkpoint: {uri: file://x}", "7:19: checkpoint.uri: expected an absolute"),
        ("checkpoint", "checkpoint: {uri: 's3://'}", "7:19: checkpoint.uri: expected s3://bucket"),
        ("checkpoint", "checkpoint: {uri: x, interval: 0}", "7:32: checkpoint.interval: expected"
         " auto or a duration above 0"),
        ("checkpoint", "checkpoint: {uri: x, intervall: 1}", "7:22: checkpoint.intervall: unknown"
         " key; did you mean 'interval'?"),
        ("resources", "resources: {gpu_models: [H1000]}", "8:26: resources.gpu_models[0]: the GPU"
         " model 'H1000' is not in the catalogue; did you mean 'H100'"),
        ("resources", "resources: {min_nodes: 4, max_nodes: 2}", "8:38: resources.max_nodes: 2 is"),
        ("resources", "resources: {max_nodes: 1000000000}", "8:24: resources.max_nodes: expected"),
        ("resources", "resources: {min_gpus: 4, max_gpus: 2}", "8:36: resources.max_gpus: 2 is"),
        ("phases", "phases: [{name: a, share: 0.5}]", "8:9: phases: the shares sum to 0.5; they"),
        ("phases", "phases: [{name: a, share: 0.5}, {name: a, share: 0.5}]", "8:40: phases[1]"),
        ("phases", "phases: [{name: a, share: 1, max_nodes: 3}]", "8:10: phases[0]: 1 to 3 nodes"),
        ("throughput2", "budget: {usd: 0}", "8:15: budget.usd: expected greater than 0, got 0"),
        ("env", "env: {A: 1.5}", "8:10: env.A: expected a valid string, got 1.5"),
        ("env", "env: {'A=B': x}", "8:7: env.A=B: a variable's name"),
        ("run", "run: python 'x", "8:6: run: cannot be split into words"),
        ("data", "data: {uri: x, region: mars}", "8:24: data.region: expected provider/region"),
        ("version", "version: 2", "8:10: version: 2 is not allowed; expected 1"),
        ("kind", "kind: policy", "8:7: kind: 'policy' is not allowed; expected 'job'"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_place(
    tmp_path: Path, name: str, line: str, said: str
) -> None:
    problems = refusal(tmp_path, with_line(name, line))
    assert len(problems) == 1
    assert problems[0].startswith(said)


@pytest.mark.parametrize(
    ("throughput", "said"),
    [
        ("{}", "expected points, or flops_per_unit with mfu"),
        ("{mfu: 0.4}", "flops_per_unit and mfu are given together or not at all"),
        ("{mfu: 1.4, flops_per_unit: 1}", "throughput.mfu: expected less than or equal to 1"),
        ("{points: [{gpu: T5, units_per_s: 1}]}", "did you mean 'T4'"),
        ("{points: [{gpu: T4, nodes: 2, units_per_s: 1}]}", "gpus_per_node is missing beside it"),
        ("{points: [{gpu: T4, gpus: 2, gpus_per_node: 2, units_per_s: 1}]}", "not both"),
        ("{points: [{gpu: T4, units_per_s: 1}, {gpu: t4, gpus: 1, units_per_s: 2}]}", "a second"),
    ],
)
def test_a_throughput_that_says_too_little_or_too_much(
    tmp_path: Path, throughput: str, said: str
) -> None:
    text = SMALLEST.partition("throughput:")[0] + "checkpoint: {uri: x}\n"
    problems = refusal(tmp_path, f"{text}throughput: {throughput}\n")
    assert len(problems) == 1
    assert said in problems[0]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = "naem: x\nwork: {amount: 0, unit: miles}\ndeadline: 5y\nthroughput: {}\n"
    fields = [problem.split(": ")[1] for problem in refusal(tmp_path, text)]
    assert sorted(fields) == [
        "checkpoint", "deadline", "naem", "name", "work.amount", "work.unit",
    ]  # fmt: skip


def test_the_schema_describes_every_field() -> None:
    schema = job_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["$id"] == "urn:costopt:schema:job:1"
    sections = [schema, *schema["$defs"].values()]
    bare = [
        f"{section['title']}.{name}"
        for section in sections
        for name, value in section.get("properties", {}).items()
        if "description" not in value
    ]
    assert bare == []


def test_a_phase_has_its_own_speed_and_evaluations(tmp_path: Path) -> None:
    job = load(
        tmp_path,
        SMALLEST
        + "phases:\n"
        + "  - name: warm-up\n"
        + "    share: 0.25\n"
        + "    throughput: {points: [{gpu: T4, gpus: 2, units_per_s: 4}]}\n"
        + "    evaluation: {every: 50, duration: 2m}\n"
        + "  - {name: main, share: 0.75}\n",
    )
    first, second = job.phases
    assert first.throughput is not None
    assert first.throughput.points == (ThroughputSample("T4", 2, 4.0),)
    assert (first.evaluate_every, first.evaluation_s) == (50.0, 120.0)
    assert (second.throughput, second.evaluate_every) == (None, None)


def test_a_checkpoint_store_may_say_where_it_stands(tmp_path: Path) -> None:
    job = load(
        tmp_path,
        with_line("checkpoint", "checkpoint: {uri: c, region: gcp/us-central1, size_gib: 9}"),
    )
    assert job.checkpoint.region == "gcp/us-central1"
    assert load(tmp_path, SMALLEST).checkpoint.region is None


@pytest.mark.parametrize(
    ("phase", "problem"),
    [
        (
            "throughput: {mfu: 0.4}",
            "phases[0].throughput: flops_per_unit and mfu are given together or not at all",
        ),
        (
            "throughput: {points: [{gpu: T5, units_per_s: 4}]}",
            "phases[0].throughput.points[0].gpu: the GPU model 'T5' is not in the catalogue",
        ),
        ("evaluation: {every: 50}", "phases[0].evaluation.duration: is missing: how long"),
        ("evaluation: {every: 0, duration: 2m}", "phases[0].evaluation.every: expected"),
        (
            "evaluation: {every: 5, duration: 0s}",
            "phases[0].evaluation.duration: expected a duration above 0",
        ),
        ("evaluation: {evry: 5, duration: 2m}", "did you mean 'every'?"),
    ],
)
def test_a_phase_s_own_contradictions_are_told(tmp_path: Path, phase: str, problem: str) -> None:
    told = refusal(tmp_path, f"{SMALLEST}phases:\n  - {{name: all, share: 1, {phase}}}\n")
    assert any(problem in line for line in told), told


@pytest.mark.parametrize(
    "line",
    [
        "checkpoint: {uri: c, region: us-east-1}",
        "data: {uri: d, region: aws}",
        "data: {uri: d, region: AWS/us-east-1}",
    ],
)
def test_a_region_names_its_provider(tmp_path: Path, line: str) -> None:
    (told,) = refusal(tmp_path, with_line(line.partition(":")[0], line))
    assert "region: expected provider/region, such as aws/us-east-1, got" in told
