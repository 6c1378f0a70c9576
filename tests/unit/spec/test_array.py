"""Arrays in job files: what they mean, and what is refused where."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.domain.array import StopRule, fill_placeholders, with_remaining_tasks
from costopt.domain.job import Job, WorkUnit
from costopt.domain.market import Pool
from costopt.spec import SpecFileError, SpecProblem, load_job

NOW = datetime(2026, 5, 1, 8, tzinfo=UTC)
ARRAY = "name: sweep\ndeadline: 5h\nrun: python go.py\narray:\n"
SMALLEST = "  tasks: 40\n  duration: 10m\n  parallel: 1..16\n"
ONE, EIGHT = (
    Pool.parse(f"aws/us-east-1/us-east-1a/{name}/spot") for name in ("p3.2xlarge", "p4d.24xlarge")
)


def load(folder: Path, array: str, more: str = "") -> Job:
    (folder / "job.yaml").write_text(f"{ARRAY}{array}{more}")
    return load_job(folder / "job.yaml", NOW)


def refused(folder: Path, array: str, more: str = "") -> tuple[SpecProblem, ...]:
    with pytest.raises(SpecFileError) as caught:
        load(folder, array, more)
    return caught.value.problems


def test_the_smallest_array_has_the_stated_defaults(tmp_path: Path) -> None:
    job = load(tmp_path, SMALLEST)
    assert job.array is not None
    assert (job.work.amount, job.work.unit) == (40, WorkUnit.TASKS)
    assert (job.array.tasks, job.array.retries, job.array.max_failures) == (40, 2, 0)
    assert job.array.timeout_s is None
    assert (job.array.gpus_per_task, job.array.rows, job.array.stop) == (1, (), None)


def test_speed_is_linear_up_to_the_last_task(tmp_path: Path) -> None:
    catalog = load_catalog()
    job = load(tmp_path, SMALLEST.replace("40", "20").replace("16", "64"))
    one, eight = catalog.instance_type(ONE), catalog.instance_type(EIGHT)
    assert one is not None
    assert eight is not None
    speeds = [job.gang_units_per_s(one, nodes) for nodes in (1, 8, 20, 40)]
    assert [s.value * 600 for s in speeds if s is not None] == pytest.approx([1, 8, 20, 20])
    assert job.gang_sizes(eight) == (1, 2, 3)
    assert max(with_remaining_tasks(job, 15.0, 0).gang_sizes(one)) == 5
    assert max(with_remaining_tasks(job, 15.0, 7).gang_sizes(one)) == 7
    assert with_remaining_tasks(job, 15.0, 0).gang_sizes(eight) == (1,)


def test_a_task_s_time_may_depend_on_the_gpu_and_it_may_take_several(tmp_path: Path) -> None:
    times = SMALLEST.replace("10m", "{V100: 10m, A100: 5m}") + "  gpus_per_task: 2\n"
    job = load(tmp_path, times)
    catalog = load_catalog()
    one, eight = catalog.instance_type(ONE), catalog.instance_type(EIGHT)
    assert one is not None
    assert eight is not None
    assert job.resources.rejection_reason(one) is not None
    speed = job.gang_units_per_s(eight, 1)
    assert speed is not None
    assert speed.value * 300 == pytest.approx(4)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("lr,seed\n0.1,1\n0.2,2\n", (("0.1", "1"), ("0.2", "2"))),
        ('lr,seed\n"a, b",1\n\n c ,2\n', (("a, b", "1"), ("c", "2"))),
    ],
)
def test_parameters_are_the_rows_of_a_file(
    tmp_path: Path, rows: str, expected: tuple[tuple[str, ...], ...]
) -> None:
    (tmp_path / "sweep.csv").write_text(rows)
    job = load(tmp_path, SMALLEST.replace("tasks: 40", "parameters: sweep.csv"))
    assert job.array is not None
    assert (job.array.tasks, job.array.names, job.array.rows) == (2, ("lr", "seed"), expected)
    assert job.array.parameters(1)["seed"] == "2"


def test_parameters_are_all_combinations_of_lists(tmp_path: Path) -> None:
    grid = SMALLEST.replace("tasks: 40", "parameters: {lr: [0.1, 1e-2], warm: [true, false]}")
    job = load(tmp_path, grid + "  stop: {metric: loss, below: 0.5}\n")
    assert job.array is not None
    assert [row[1] for row in job.array.rows] == ["true", "false", "true", "false"]
    assert job.array.stop == StopRule("loss", below=0.5)


@pytest.mark.parametrize(
    "array",
    [
        SMALLEST.replace("  tasks: 40\n", ""),
        SMALLEST.replace("tasks: 40", "tasks: 3\n  parameters: {lr: [1, 2]}"),
        SMALLEST.replace("tasks: 40", "parameters: {COSTOPT_TASK: [1]}"),
        SMALLEST.replace("tasks: 40", "parameters: {a-b: [1]}"),
        SMALLEST.replace("tasks: 40", "parameters: {a: [1, 2, 3], b: [1, 2], c: []}"),
        SMALLEST.replace("tasks: 40", "parameters: ../sweep.csv"),
        SMALLEST.replace("tasks: 40", "parameters: /etc/passwd"),
        SMALLEST.replace("tasks: 40", "parameters: missing.csv"),
        SMALLEST.replace("tasks: 40", "parameters: ragged.csv"),
        SMALLEST.replace("tasks: 40", "parameters: twice.csv"),
        SMALLEST.replace("tasks: 40", "parameters: link.csv"),
        SMALLEST.replace("tasks: 40", "parameters: bytes.csv"),
        SMALLEST.replace("1..16", "16..1"),
        SMALLEST.replace("1..16", "true"),
        SMALLEST.replace("1..16", "0..3"),
        SMALLEST.replace("10m", "0s"),
        SMALLEST.replace("10m", "{T5: 1m}"),
        SMALLEST + "  stop: {metric: loss}\n",
        SMALLEST + "  stop: {metric: loss, above: 1, below: 0}\n",
        SMALLEST + "  retries: -1\n",
        SMALLEST + "  timeout: 9m\n",
    ],
)
def test_contradictions_are_refused_without_quoting_the_file(tmp_path: Path, array: str) -> None:
    (tmp_path / "ragged.csv").write_text("lr,seed\nsecret\n")
    (tmp_path / "twice.csv").write_text("secret,secret\n1,2\n")
    (tmp_path / "bytes.csv").write_bytes(b"lr\n\xff\xfe\n")
    (tmp_path / "link.csv").symlink_to("/etc/passwd")
    problems = refused(tmp_path, array)
    assert all(problem.field.startswith("array") for problem in problems)
    assert not any("secret" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("work: {amount: 4, unit: steps}\n", "work"),
        ("checkpoint: {uri: saves}\n", "checkpoint"),
        ("throughput: {points: [{gpu: T4, units_per_s: 1}]}\n", "throughput"),
        ("elastic: true\n", "elastic"),
        ("resources: {max_nodes: 3}\n", "resources.max_nodes"),
    ],
)
def test_fields_of_training_jobs_are_refused(tmp_path: Path, more: str, field: str) -> None:
    (problem,) = refused(tmp_path, SMALLEST, more)
    assert problem.field == field


def test_an_array_needs_a_command(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(ARRAY.replace("run: python go.py\n", "") + SMALLEST)
    with pytest.raises(SpecFileError) as caught:
        load_job(tmp_path / "job.yaml", NOW)
    assert [problem.field for problem in caught.value.problems] == ["run"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python go.py {lrr}", "{lrr} is not a parameter of the tasks; did you mean 'lr'?"),
        ("python go.py --x={width}", "{width} is not a parameter of the tasks; the parameters are"),
    ],
)
def test_a_name_in_braces_must_be_a_parameter(command: str, message: str, tmp_path: Path) -> None:
    array = "  parameters: {lr: [1, 2]}\n  duration: 10m\n  parallel: 2\n"
    text = f"{ARRAY}{array}".replace("python go.py", command)
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(SpecFileError) as caught:
        load_job(tmp_path / "job.yaml", NOW)
    (problem,) = caught.value.problems
    assert (problem.field, problem.code) == ("run", "unknown_name")
    assert problem.message.startswith(message)


def test_what_is_in_a_task_s_command(tmp_path: Path) -> None:
    array = "  parameters: {lr: [1, 2]}\n  duration: 10m\n  parallel: 2\n"
    command = '["{lr} --{lr}= {{lr}} ${HOME} {} {1}"]'
    (tmp_path / "job.yaml").write_text(f"{ARRAY}{array}".replace("python go.py", command))
    (word,) = load_job(tmp_path / "job.yaml", NOW).run
    assert fill_placeholders(word, {"lr": "0.1"}) == "0.1 --0.1= {lr} ${HOME} {} {1}"
