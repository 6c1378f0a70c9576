"""Job files: what they mean, and what is refused where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costopt.catalog import load_catalog
from costopt.domain.cached_data import FETCH_GBPS, GIGABITS_PER_GIB, CachedData
from costopt.domain.job import Budget, Job, Phase, WorkUnit
from costopt.domain.throughput import ThroughputSample
from costopt.spec import SpecFileError, SpecProblem, job_schema, load_job

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


def refusal(tmp_path: Path, text: str) -> tuple[SpecProblem, ...]:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, text)
    assert {problem.path for problem in caught.value.problems} == {str(tmp_path / "job.yaml")}
    return caught.value.problems


def assert_problem(
    problem: SpecProblem, line: int, column: int, field: str, code: str, near: str = ""
) -> None:
    """The problem is of that kind and there; its message names the near-by names, if any."""
    found = (problem.line, problem.column, problem.field, problem.code)
    assert found == (line, column, field, code)
    assert near in problem.message


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
    job = load(tmp_path, with_line("deadline", "deadline: 7200"))
    assert job.deadline_at == NOW + timedelta(hours=2)


@pytest.mark.parametrize("text", ["72", "'72'", "2.5"])
def test_a_deadline_of_few_seconds_asks_for_its_unit(tmp_path: Path, text: str) -> None:
    (problem,) = refusal(tmp_path, with_line("deadline", f"deadline: {text}"))
    assert (problem.field, problem.code) == ("deadline", "missing_unit")
    number = text.strip("'")
    assert f"did you mean {number}h?" in problem.message
    job = load(tmp_path, with_line("deadline", f"deadline: {number}s"))
    assert job.deadline_at == NOW + timedelta(seconds=float(number))


def test_gangs_may_grow_to_the_gpus_asked_for(tmp_path: Path) -> None:
    job = load(tmp_path, with_line("resources", "resources: {min_gpus: 4, max_gpus: 16}"))
    assert job.resources.max_nodes == 16


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("name", "name: a b", (1, 7, "name", "string_pattern_mismatch")),
        ("work", "work: {amount: -1, unit: steps}", (2, 16, "work.amount", "greater_than")),
        ("work", "work: {amount: .nan, unit: steps}", (2, 16, "work.amount", "finite_number")),
        ("work", "work: {amount: .inf, unit: steps}", (2, 16, "work.amount", "finite_number")),
        ("work", "work: {amount: 1e99, unit: steps}", (2, 16, "work.amount", "range")),
        ("work", "work: {amount: 'four', unit: steps}", (2, 16, "work.amount", "float_type")),
        ("work", "work: {amount: true, unit: steps}", (2, 16, "work.amount", "float_type")),
        ("work", "work: {amount: 4, unit: step}", (2, 25, "work.unit", "enum", "'steps'")),
        ("work", "work: {amount: 4}", (2, 7, "work.unit", "missing")),
        ("work", "work: 4", (2, 7, "work", "work")),
        ("work", "work:", (2, 6, "work", "work")),
        ("deadline", "deadline: 2026-05-01T07:00:00Z", (3, 11, "deadline", "in_past")),
        ("deadline", "deadline: 2026-06-01T07:00:00.5", (3, 11, "deadline", "moment")),
        ("deadline", "deadline: soon", (3, 11, "deadline", "moment")),
        ("deadline", "deadline: 0", (3, 11, "deadline", "in_past")),
        ("deadline", "deadline: 9999-12-31T23:59:59Z", (3, 11, "deadline", "beyond_horizon")),
        ("start", "start: 9999-12-31T23:59:59Z", (8, 8, "start", "beyond_horizon")),
        ("checkpoint", "checkpoint: {uri: c, region: aws/us-esat-1}",
         (7, 30, "checkpoint.region", "unknown_name", "'aws/us-east-1'")),
        ("data", "data: {uri: d, region: gcp/us-central9}",
         (8, 24, "data.region", "unknown_name", "'gcp/us-central1'")),
        ("run", "run: []", (8, 6, "run", "too_short")),
        ("run", "run: ' '", (8, 6, "run", "too_short")),
        ("start", "start: 2026-04-01T00:00.0", (8, 8, "start", "moment")),
        ("checkpoint", "checkpoint: {uri: ftp://x}", (7, 19, "checkpoint.uri", "unknown_name")),
        ("checkpoint", "checkpoint: {uri: file://x}", (7, 19, "checkpoint.uri", "not_absolute")),
        ("checkpoint", "checkpoint: {uri: 's3://'}", (7, 19, "checkpoint.uri", "no_bucket")),
        ("checkpoint", "checkpoint: {uri: x, interval: 0}",
         (7, 32, "checkpoint.interval", "value_error")),
        ("checkpoint", "checkpoint: {uri: x, intervall: 1}",
         (7, 22, "checkpoint.intervall", "extra_forbidden", "'interval'")),
        ("resources", "resources: {gpu_models: [H1000]}",
         (8, 26, "resources.gpu_models[0]", "unknown_name", "'H100'")),
        ("resources", "resources: {min_nodes: 4, max_nodes: 2}",
         (8, 38, "resources.max_nodes", "value_error")),
        ("resources", "resources: {max_nodes: 1000000000}",
         (8, 24, "resources.max_nodes", "less_than_equal")),
        ("resources", "resources: {min_gpus: 4, max_gpus: 2}",
         (8, 36, "resources.max_gpus", "value_error")),
        ("phases", "phases: [{name: a, share: 0.5}]", (8, 9, "phases", "value_error")),
        ("phases", "phases: [{name: a, share: 0.5}, {name: a, share: 0.5}]",
         (8, 40, "phases[1].name", "duplicate")),
        ("phases", "phases: [{name: a, share: 1, max_nodes: 3}]",
         (8, 10, "phases[0]", "value_error")),
        ("throughput2", "budget: {usd: 0}", (8, 15, "budget.usd", "greater_than")),
        ("env", "env: {A: 1.5}", (8, 10, "env.A", "string_type")),
        ("env", "env: {'A=B': x}", (8, 7, "env.A=B", "value_error")),
        ("run", "run: python 'x", (8, 6, "run", "command")),
        ("data", "data: {uri: x, region: mars}", (8, 24, "data.region", "string_pattern_mismatch")),
        ("version", "version: 2", (8, 10, "version", "literal_error")),
        ("kind", "kind: policy", (8, 7, "kind", "literal_error")),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_place(
    tmp_path: Path, name: str, line: str, expected: tuple[Any, ...]
) -> None:
    (problem,) = refusal(tmp_path, with_line(name, line))
    assert_problem(problem, *expected)


@pytest.mark.parametrize(
    ("mfu", "allowed", "expected"),
    [
        ("0.4", "[]", (0.4, "H100", None)),
        ("0.4", "[A100, h100-sxm5]", (0.4, "H100", None)),
        ("0.4", "[A100, L40S]", (0.4, "A100", None)),
        ("{value: 0.42, gpus: 64}", "[A100]", (0.42, "A100", 64)),
        ("{value: 0.42, gpus: 64, gpu: H200}", "[A100]", (0.42, "H200", 64)),
        ("{value: 0.3, gpu: T4}", "[]", (0.3, "T4", None)),
    ],
)
def test_an_mfu_names_its_gpu_and_scale(
    tmp_path: Path, mfu: str, allowed: str, expected: tuple[float, str, int | None]
) -> None:
    text = SMALLEST.partition("throughput:")[0] + "checkpoint: {uri: x}\n"
    text += f"throughput: {{flops_per_unit: 1e9, mfu: {mfu}}}\nresources: {{gpu_models: {allowed}}}"
    found = load(tmp_path, text).throughput.mfu
    assert found is not None
    assert (found.value, found.gpu_model, found.gpus) == expected
    gpu = load_catalog().find(gpu=expected[1])[0].gpu
    assert found.relative == gpu.relative_mfu


@pytest.mark.parametrize(
    ("throughput", "expected"),
    [
        ("{}", (5, 13, "throughput", "missing")),
        ("{mfu: 0.4}", (5, 13, "throughput", "incomplete_pair")),
        ("{mfu: 1.4, flops_per_unit: 1}", (5, 19, "throughput.mfu", "less_than_equal")),
        (
            "{flops_per_unit: 1, mfu: {value: 0.4, gpu: T5}}",
            (5, 56, "throughput.mfu.gpu", "unknown_name", "'T4'"),
        ),
        (
            "{points: [{gpu: T5, units_per_s: 1}]}",
            (5, 29, "throughput.points[0].gpu", "unknown_name", "'T4'"),
        ),
        (
            "{points: [{gpu: T4, nodes: 2, units_per_s: 1}]}",
            (5, 40, "throughput.points[0].nodes", "value_error"),
        ),
        (
            "{points: [{gpu: T4, gpus: 2, gpus_per_node: 2, units_per_s: 1}]}",
            (5, 39, "throughput.points[0].gpus", "value_error"),
        ),
        (
            "{points: [{gpu: T4, units_per_s: 1}, {gpu: t4, gpus: 1, units_per_s: 2}]}",
            (5, 50, "throughput.points[1]", "duplicate"),
        ),
    ],
)
def test_a_throughput_that_says_too_little_or_too_much(
    tmp_path: Path, throughput: str, expected: tuple[Any, ...]
) -> None:
    text = SMALLEST.partition("throughput:")[0] + "checkpoint: {uri: x}\n"
    (problem,) = refusal(tmp_path, f"{text}throughput: {throughput}\n")
    assert_problem(problem, *expected)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = "naem: x\nwork: {amount: 0, unit: miles}\ndeadline: 5y\nthroughput: {}\n"
    fields = [problem.field for problem in refusal(tmp_path, text)]
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


def test_a_checkpoint_store_may_name_its_region(tmp_path: Path) -> None:
    job = load(
        tmp_path,
        with_line("checkpoint", "checkpoint: {uri: c, region: gcp/us-central1, size_gib: 9}"),
    )
    assert job.checkpoint.region == "gcp/us-central1"
    assert load(tmp_path, SMALLEST).checkpoint.region is None


def test_a_cache_names_its_place_size_and_path(tmp_path: Path) -> None:
    digest = "ab" * 32
    text = (
        f"{SMALLEST}cache:\n"
        f"  - {{uri: s3://b/w, to: /data/w, size_gib: 130, sha256: {digest}}}\n"
        "  - {uri: tokenizer, to: tokenizer, size_gib: 1, gbps: 0.5}\n"
        "  - {uri: gs://b/w, to: /opt/w, size_gib: 130, in_image: true}\n"
    )
    job = load(tmp_path, text)
    assert job.cache == (
        CachedData("s3://b/w", "/data/w", 130.0, sha256=digest),
        CachedData(str(tmp_path / "tokenizer"), "tokenizer", 1.0, gbps=0.5),
        CachedData("gs://b/w", "/opt/w", 130.0, in_image=True),
    )
    seconds = (130 / FETCH_GBPS + 1 / 0.5) * GIGABITS_PER_GIB
    assert job.cache_s() == pytest.approx(seconds)
    assert job.overhead_s == pytest.approx(load(tmp_path, SMALLEST).overhead_s + seconds)


@pytest.mark.parametrize(
    ("entry", "field", "code"),
    [
        ("uri: w, to: w", "size_gib", "missing"),
        ("uri: w, to: ../w, size_gib: 1", "to", "string_pattern_mismatch"),
        ("uri: s4://w, to: w, size_gib: 1", "uri", "unknown_name"),
        ("uri: w, to: w, size_gib: 1, region: aws/us-east-9", "region", "unknown_name"),
        ("uri: w, to: w, size_gib: 1, sha256: abc", "sha256", "string_pattern_mismatch"),
        ("uri: w, to: w, size_gib: 1, in_image: true", "to", "value_error"),
        ("uri: w, to: x, size_gib: 1", "to", "duplicate"),
    ],
)
def test_a_cache_s_contradictions_are_reported(
    tmp_path: Path, entry: str, field: str, code: str
) -> None:
    other = "  - {uri: x, to: x, size_gib: 1}\n"
    (reported,) = refusal(tmp_path, f"{SMALLEST}cache:\n{other}  - {{{entry}}}\n")
    assert (reported.field, reported.code) == (f"cache[1].{field}", code)


@pytest.mark.parametrize(
    ("phase", "field", "code"),
    [
        ("throughput: {mfu: 0.4}", "throughput", "incomplete_pair"),
        (
            "throughput: {points: [{gpu: T5, units_per_s: 4}]}",
            "throughput.points[0].gpu",
            "unknown_name",
        ),
        ("evaluation: {every: 50}", "evaluation.duration", "missing"),
        ("evaluation: {every: 0, duration: 2m}", "evaluation.every", "greater_than"),
        ("evaluation: {every: 5, duration: 0s}", "evaluation.duration", "value_error"),
        ("evaluation: {evry: 5, duration: 2m}", "evaluation.evry", "extra_forbidden"),
    ],
)
def test_a_phase_s_own_contradictions_are_reported(
    tmp_path: Path, phase: str, field: str, code: str
) -> None:
    reported = refusal(tmp_path, f"{SMALLEST}phases:\n  - {{name: all, share: 1, {phase}}}\n")
    assert (f"phases[0].{field}", code) in [(problem.field, problem.code) for problem in reported]


@pytest.mark.parametrize(
    "line",
    [
        "checkpoint: {uri: c, region: us-east-1}",
        "data: {uri: d, region: aws}",
        "data: {uri: d, region: AWS/us-east-1}",
    ],
)
def test_a_region_names_its_provider(tmp_path: Path, line: str) -> None:
    section = line.partition(":")[0]
    (reported,) = refusal(tmp_path, with_line(section, line))
    assert (reported.field, reported.code) == (f"{section}.region", "string_pattern_mismatch")


SHARDED = """\
name: big
deadline: 90d
model: {params: 70e9, method: pretrain, tokens: 20e9, sequence: 4096}
resources: {gpu_models: [H100], max_nodes: 8, gpus_per_group: 32}
checkpoint: {uri: "s3://bucket/big", region: aws/us-east-1}
elastic: true
run: [python, train.py]
"""


def test_a_job_of_shard_groups_has_times_by_the_gang(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(SHARDED)
    now = datetime(2026, 3, 2, tzinfo=UTC)
    big = load_job(str(path), now)
    assert big.resources.gpus_per_group == 32
    assert big.checkpoint.auto_save
    assert big.checkpoint.auto_restore
    assert big.checkpoint.save_s < 10 < big.checkpoint.durable_s
    path.write_text(SHARDED.replace("{uri", "{save: 20s, keep: 5, keep_every: 1e9, gbps: 40, uri"))
    stated = load_job(str(path), now).checkpoint
    assert (stated.save_s, stated.auto_save, stated.auto_restore) == (20.0, False, True)
    assert (stated.keep, stated.keep_every, stated.gbps) == (5, 1e9, 40.0)
    path.write_text(SHARDED.replace(", gpus_per_group: 32", ""))
    whole = load_job(str(path), now).checkpoint
    assert (whole.save_s, whole.restore_s, whole.auto_save) == (30.0, 60.0, False)
    path.write_text(SHARDED.replace("{uri", "{size_gib: 0, uri"))
    with pytest.raises(SpecFileError, match="size_gib"):
        load_job(str(path), now)
