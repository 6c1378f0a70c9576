"""sbatch scripts as job files: what is expressed, what is named as left out, what is refused."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.spec import SpecFileError, parse_job
from costopt.spec import sbatch_values as values
from costopt.spec.job_draft import JobDraft
from costopt.spec.sbatch_job import convert_script
from costopt.spec.sbatch_script import LONG, SHORT, read_script
from costopt.spec.yaml_document import parse_document

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NEEDED = "-t 1:00:00 --deadline=now+5hours"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def script(folder: Path, *options: str, body: str = "python train.py", name: str = "a.sh") -> Path:
    path = folder / name
    lines = "".join(f"#SBATCH {each}\n" for each in options)
    path.write_text(f"#!/bin/bash\n{lines}{body}\n", encoding="utf-8")
    return path


def converted(folder: Path, *options: str, body: str = "python train.py") -> JobDraft:
    return convert_script(script(folder, *options, body=body), NOW)


def job(folder: Path, *options: str, body: str = "python train.py") -> Job:
    text = converted(folder, *options, body=body).text
    return parse_job(parse_document(text, str(folder / "job.yaml")), NOW)


def refusals(folder: Path, *options: str, body: str = "python train.py") -> list[tuple[int, str]]:
    """Line and field of each problem."""
    with pytest.raises(SpecFileError) as caught:
        converted(folder, *options, body=body)
    return [(problem.line, problem.field) for problem in caught.value.problems]


def test_a_gang_becomes_a_job(tmp_path: Path) -> None:
    made = job(
        tmp_path, '--job-name="my tune"', "-N 2 --gres=gpu:h100:8,shard:1 # two nodes",
        "--time=1-12 --mem=512G", "--deadline 2026-05-04T08:00", "--export=ALL,EPOCHS=3,WANDB",
    )  # fmt: skip
    assert made.name == "my-tune"
    assert made.deadline_at == datetime(2026, 5, 4, 8, tzinfo=UTC)
    resources = made.resources
    assert resources.gpu_models == ("H100",)
    assert (resources.min_gpus, resources.max_gpus) == (16, 16)
    assert [(phase.min_nodes, phase.max_nodes) for phase in made.phases] == [(2, 2)]
    assert resources.min_memory_gib == 512
    assert made.work.amount == timedelta(hours=36).total_seconds()
    (point,) = made.throughput.points
    assert (point.gpu_model, point.gpus, point.units_per_s) == ("H100", 16, 1)
    assert dict(made.env) == {"SLURM_JOB_NAME": "my tune", "EPOCHS": "3"}
    assert made.workdir == str(tmp_path)


def test_an_array_becomes_tasks_with_their_index(tmp_path: Path) -> None:
    made = job(tmp_path, "--array=1,4-8:2%2", "-G a100:2", NEEDED)
    assert made.array is not None
    indexes = [made.array.parameters(task) for task in range(made.array.tasks)]
    assert indexes == [{"SLURM_ARRAY_TASK_ID": index} for index in ("1", "4", "6", "8")]
    assert made.array.gpus_per_task == 2
    assert made.resources.max_gpus == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-9%2,15", ([*range(10), 15], 2)),
        ("15,0-9%2", ([15, *range(10)], 2)),
        ("0%1,1%3,2", ([0, 1, 2], 1)),
        ("0-3%9", ([0, 1, 2, 3], 4)),
    ],
)
def test_the_limit_of_an_array_may_follow_any_part(
    text: str, expected: tuple[list[int], int]
) -> None:
    assert values.array_indexes(text) == expected


@pytest.mark.parametrize("text", ["0-9%0", "0-9%,15", "%2", "0-9%2%3", "0-9%x,3", "0-9%-1", "1,"])
def test_a_limit_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        values.array_indexes(text)


def test_a_total_of_gpus_leaves_the_nodes_open(tmp_path: Path) -> None:
    resources = job(tmp_path, "--gpus=v100:16", NEEDED).resources
    assert (resources.min_gpus, resources.max_gpus) == (16, 16)


def test_the_gpu_model_may_be_a_feature(tmp_path: Path) -> None:
    options = ("--gpus-per-node=4", "--constraint=a100&nvlink", NEEDED)
    assert job(tmp_path, *options).resources.gpu_models == ("A100",)


def test_a_range_of_nodes_is_measured_on_the_fewest(tmp_path: Path) -> None:
    made = job(tmp_path, "-N 2-4 --gres=gpu:t4:1", NEEDED)
    assert (made.resources.min_gpus, made.resources.max_gpus) == (2, 4)
    assert made.throughput.points[0].gpus == 2


def test_omitted_options_are_named_with_their_line(tmp_path: Path) -> None:
    said = converted(
        tmp_path, "--gres=gpu:t4:1", NEEDED, "-p gpu -A lab -q low", "--signal=B:USR1@60",
        "--requeue --exclusive", "--no-requeue -o out.txt",
        body="module load cuda\nM=$(scontrol show hostnames $SLURM_JOB_NODELIST)\npython x.py",
    ).left_out  # fmt: skip
    named = [tuple(line.split(": ")[:2]) for line in said]
    assert named == [
        ("a.sh:4", "--account=lab"), ("a.sh:4", "--partition=gpu"), ("a.sh:4", "--qos=low"),
        ("a.sh:5", "--signal=B:USR1@60"), ("a.sh:7", "--no-requeue"),
        ("a.sh:7", "--output=out.txt"),
        ("a.sh:8", "module"), ("a.sh:9", "SLURM_JOB_NODELIST"), ("a.sh:9", "scontrol"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--gres=gpu:t4:1",), [(0, "--deadline"), (0, "--time")]),
        ((NEEDED,), [(0, "--gpus-per-node")]),
        ((NEEDED, "--gres=gpu:8"), [(3, "--gres")]),
        ((NEEDED, "--gres=gpu:rtx9090:8"), [(3, "--gres")]),
        ((NEEDED, "-G t4:3 -N 2"), [(3, "--gpus")]),
        ((NEEDED, "-G t4:1", "-d afterok:7", "-H"), [(4, "--dependency"), (5, "--hold")]),
        ((NEEDED, "-N2 -G t4:2 --array=0-3"), [(3, "--array")]),
        ((NEEDED, "-G t4:1 --array=3-1"), [(3, "--array")]),
        ((NEEDED, "-G t4:1 --array=0-9999999"), [(3, "--array")]),
        (("-G t4:1 -t 0 --deadline=soon",), [(2, "--deadline"), (2, "--time")]),
        (("-G t4:0 -t UNLIMITED --deadline=18:00 --mem=lots",),
         [(2, "--gpus"), (2, "--gpus-per-node"), (2, "--mem"), (2, "--time")]),
        ((NEEDED, "-G t4:1 -D /elsewhere"), [(3, "--chdir")]),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_is_refused_by_line_and_option(
    tmp_path: Path, options: tuple[str, ...], expected: list[tuple[int, str]]
) -> None:
    found = [(line, field) for line, field in refusals(tmp_path, *options)]
    assert {*found} <= {*expected, (0, "--gpus-per-node")}
    assert {*expected} - {(2, "--gpus-per-node")} <= {*found}


def test_several_tasks_of_srun_on_a_node_are_refused(tmp_path: Path) -> None:
    options = ("--gres=gpu:t4:4", NEEDED, "--ntasks-per-node=4")
    assert refusals(tmp_path, *options, body="srun python x.py") == [(4, "--ntasks-per-node")]
    job(tmp_path, *options, body="torchrun --nproc-per-node=4 x.py")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("#SBATCH --nods=2", "--nods"), ("#SBATCH --nod=2", "nodefile"), ("#SBATCH -Z", "-Z"),
        ('#SBATCH -J "x', "quotation"), ("#SBATCH -t", "--time"), ("#SBATCH 8", "'8'"),
        ("#SBATCH hetjob", "components"), ("#SBATCHx", "space"),
    ],
)  # fmt: skip
def test_lines_that_sbatch_would_not_understand_are_refused(
    tmp_path: Path, line: str, code: str
) -> None:
    path = tmp_path / "a.sh"
    path.write_text(f"#!/bin/sh\n\n{line}\ntrue\n")
    with pytest.raises(SpecFileError) as caught:
        read_script(path)
    (problem,) = caught.value.problems
    assert problem.line == 3
    assert code in problem.message


@pytest.mark.parametrize(
    ("text", "line"), [("true\n", 1), ("#!/bin/sh\n", 0), ("#!/bin/sh\ntrue\n#SBATCH -N1\n", 3)]
)
def test_other_files_are_refused(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "a.sh").write_text(text)
    with pytest.raises(SpecFileError) as caught:
        read_script(tmp_path / "a.sh")
    assert line in [problem.line for problem in caught.value.problems]


def test_the_last_of_two_counts_and_names_may_be_short(tmp_path: Path) -> None:
    options = read_script(script(tmp_path, "-N1", "--nodes=2 --parti gpu", "-N=3")).options
    assert {name: option.value for name, option in options.items()} == {
        "nodes": "3",
        "partition": "gpu",
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129600), ("1-0:30", 88200),
     ("1-1:1:1", 90061)],
)  # fmt: skip
def test_time_limits(text: str, seconds: float) -> None:
    assert values.limit_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "moment"),
    [("now+90", "90s"), ("now+2hours", "2h"), ("now+1day", "1d"), ("18:00", "2026-05-01T18:00:00Z"),
     ("08:00", "2026-05-02T08:00:00Z"), ("6:30pm", "2026-05-01T18:30:00Z"),
     ("2026-06-01", "2026-06-01T00:00:00Z")],
)  # fmt: skip
def test_moments(text: str, moment: str) -> None:
    assert values.to_moment(text, NOW) == moment


def test_times_have_this_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert values.to_moment("2026-06-01T08:00", NOW) == "2026-06-01T06:00:00Z"
    assert values.to_moment("2026-12-01T08:00", NOW) == "2026-12-01T07:00:00Z"


@pytest.mark.parametrize(
    ("site", "model"),
    [("h100", "H100"), ("nvidia_a100", "A100"), ("a100_80gb", "A100-SXM4-80GB"),
     ("tesla_t4", "T4"), ("A100-SXM4-40GB", "A100-SXM4-40GB")],
)  # fmt: skip
def test_gpu_types_of_sites(site: str, model: str) -> None:
    assert values.catalog_gpu(site) == model


def test_each_node_runs_the_script_with_its_rank(tmp_path: Path) -> None:
    """The command of the job file, as an agent starts it."""
    body = 'srun -n 2 --kill-on-bad-exit=1 echo "$SLURM_NODEID of $SLURM_NNODES" > "out $RANK"'
    made = job(tmp_path, "-N2 --gres=gpu:t4:1", NEEDED, body=body)
    for rank in "01":
        env = {**os.environ, "RANK": rank, "WORLD_SIZE": "2"}
        subprocess.run(made.run, cwd=made.workdir, env=env, check=True, timeout=30)
    written = [(tmp_path / f"out {rank}").read_text().strip() for rank in "01"]
    assert written == ["0 of 2", "1 of 2"]


OPTION = st.one_of(
    st.builds("--{}={}".format, st.sampled_from(sorted(LONG)), st.text(max_size=12)),
    st.builds("-{} {}".format, st.sampled_from(sorted(SHORT)), st.text(max_size=12)),
    st.builds(
        "--{}={}".format,
        st.sampled_from(["time", "deadline", "begin", "array", "gres", "gpus", "nodes", "mem"]),
        st.text("0123456789-:,%+gpu.hnowT", max_size=12),
    ),
    st.text(max_size=30),
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(OPTION, max_size=6), st.text(max_size=40))
def test_any_script_is_a_job_or_refused(tmp_path: Path, options: list[str], body: str) -> None:
    path = tmp_path / "any.sh"
    lines = "".join(f"#SBATCH {each}\n" for each in options)
    path.write_text(f"#!/bin/sh\n{lines}{body}\n", encoding="utf-8", errors="replace")
    try:
        text = convert_script(path, NOW).text
    except SpecError:
        return
    try:
        parse_job(parse_document(text, "job.yaml"), NOW)
    except SpecError as error:
        assert "is not YAML" not in str(error)  # noqa: PT017 - a refusal is right, bad YAML is not
