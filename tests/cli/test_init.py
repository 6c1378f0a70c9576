"""init writes a job file that works as it is, and never touches one that exists."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import costopt as co
from tests.support.command_line import invoke
from tests.support.live_run import PATIENCE_S


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_a_commented_job_that_plans_on_the_sample_market(folder: Path) -> None:
    done = invoke("init")
    assert (done.exit_code, done.stdout) == (0, "")
    text = (folder / "job.yaml").read_text("utf-8")
    assert text.count("#") > 10
    assert invoke("validate", "job.yaml").exit_code == 0
    planned = invoke("plan", "job.yaml", "--market", "sample", "--output", "json")
    assert json.loads(planned.stdout)["status"] in ("optimal", "feasible")


def test_it_creates_the_folder(folder: Path) -> None:
    assert invoke("init", "a/b").exit_code == 0
    assert (folder / "a/b/job.yaml").is_file()


def test_it_overwrites_nothing(folder: Path) -> None:
    (folder / "job.yaml").write_text("mine")
    assert invoke("init").exit_code == 2
    assert (folder / "job.yaml").read_text() == "mine"
    (folder / "job.yaml").unlink()
    (folder / "job.yaml").symlink_to(folder / "elsewhere")
    assert invoke("init").exit_code == 2
    assert not (folder / "elsewhere").exists()


def test_a_file_in_the_folders_place_is_named(folder: Path) -> None:
    (folder / "work").write_text("")
    done = invoke("init", "work/here")
    assert done.exit_code == 2
    assert "work" in done.stderr
    assert "Traceback" not in done.stderr
    assert invoke("init", "work").exit_code == 2


def job(folder: Path) -> co.Job:
    return co.load_job(folder / "job.yaml")


ANSWERS = ("--command", "torchrun train.py", "--takes", "10s per step on 1xA100", "--work",
           "450 steps", "--checkpoint", "s3://bucket/run", "--due", "36h")  # fmt: skip


def test_options_take_it_without_questions(folder: Path) -> None:
    (folder / "requirements.txt").write_text("numpy\n")
    done = invoke("init", *ANSWERS, "--provider", "aws", "--region", "us-east-1")
    assert done.exit_code == 0, done.stderr
    assert "costopt plan job.yaml --provider aws --region us-east-1" in done.stderr
    lines = (folder / "job.yaml").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) <= 10
    found = job(folder)
    assert found.run == ("torchrun", "train.py")
    assert found.setup == ("python -m pip install -r requirements.txt",)
    assert (found.work.amount, found.work.unit) == (450, "steps")
    assert found.checkpoint.uri == "s3://bucket/run"
    assert found.deadline_at is not None
    assert invoke("plan", "job.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--takes", "an hour or so"),
        ("--takes", "40m per epoch on 1xH10"),
        ("--takes", "0 tokens/s on 1xH100"),
        ("--work", "10"),
        ("--work", "10 tokens"),
        ("--due", "soon"),
        ("--due", "2020-01-01T00:00Z"),
        ("--due", "Mon 9:00 Mars/Crater"),
        ("--checkpoint", "s4://bucket"),
        ("--command", "'torchrun"),
        ("--gpus", "8xH10"),
        ("--provider", "awz"),
        ("--region", "us-east-11"),
    ],
)
def test_what_cannot_be_read_writes_nothing(folder: Path, option: str, value: str) -> None:
    done = invoke("init", "here", *ANSWERS, option, value)
    assert done.exit_code == 2
    assert option in done.stderr or value in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "here").exists()


@pytest.mark.parametrize("left_out", ["--command", "--work", "--takes"])
def test_what_has_no_default_is_missing(folder: Path, left_out: str) -> None:
    at = ANSWERS.index(left_out)
    done = invoke("init", *ANSWERS[:at], *ANSWERS[at + 2 :])
    assert done.exit_code == 2
    assert left_out in done.stderr
    assert not (folder / "job.yaml").exists()


@pytest.mark.parametrize(
    ("work", "takes", "amount", "seconds"),
    [
        ("10 epochs", "40m per epoch on 1xA100", 10, 2400),
        ("10 epochs", "an epoch takes 40m on A100", 10, 2400),
        ("5k steps", "30s per 100 steps on 8xH100", 5000, 0.3),
        ("2B tokens", "50k tokens/s on 8xH100", 2e9, 2e-5),
        (None, "6h on 8xH100", 100, 216),
    ],
)
def test_speed_as_people_know_it(
    folder: Path, work: str | None, takes: str, amount: float, seconds: float
) -> None:
    asked = [] if work is None else ["--work", work]
    done = invoke("init", "--command", "python train.py", *asked, "--takes", takes)
    assert done.exit_code == 0, done.stderr
    found = job(folder)
    assert found.work.amount == amount
    (point,) = found.throughput.points
    assert 1 / point.units_per_s == pytest.approx(seconds)


def test_an_hour_is_of_this_machines_zone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        done = invoke("init", *ANSWERS, "--due", "2031-07-01 09:00")
    time.tzset()
    assert done.exit_code == 0, done.stderr
    assert "2031-07-01T09:00+02:00" in (folder / "job.yaml").read_text()
    assert job(folder).deadline_at == datetime(2031, 7, 1, 7, tzinfo=UTC)


def test_questions_on_a_terminal(folder: Path) -> None:
    """Each is asked again with the reason until its answer can be read."""
    answers = [
        "torchrun train.py",
        "no idea",
        "450 steps, 10s per step on 1xA100",
        "",
        "soon",
        "2d",
    ]
    said, status = on_terminal([f"{answer}\n" for answer in answers])
    assert status == 0, said
    assert said.count("Work and its time on GPUs") == 2
    assert said.count("Due") == 2
    assert "expected how" in said or "expected the work" in said
    found = job(folder)
    assert found.run == ("torchrun", "train.py")
    assert found.checkpoint.uri.endswith("/checkpoints")


def test_an_end_among_the_questions_writes_nothing(folder: Path) -> None:
    said, status = on_terminal(["torchrun train.py\n", "\x04"])
    assert status == 1, said
    assert not (folder / "job.yaml").exists()


def on_terminal(answers: list[str]) -> tuple[str, int]:
    """Return what ``costopt init`` prints on a terminal, and its exit code."""
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "costopt", "init"]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
    try:
        os.close(terminal)
        said = _read_until(main, "]: ")
        for answer in answers:
            os.write(main, answer.encode())
            said += _read_until(main, "]: ")
        return said, process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        os.close(main)


def _read_until(terminal: int, end: str) -> str:
    """Return what a program prints up to this, or until it ends."""
    said = ""
    while not said.endswith(end):
        ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
        assert ready, said
        try:
            said += os.read(terminal, 4096).decode()
        except OSError:  # the program has ended
            break
    return said


SCRIPT = "#!/bin/bash\ncd code\npip install -r requirements.txt\nsource env\ntorchrun train.py\n"
SBATCH = """\
#!/bin/bash
#SBATCH --job-name=tune --gres=gpu:h100:8 --partition=gpu
srun torchrun train.py
"""
SKY = "resources: {accelerators: H100:8, infra: aws/us-east-1, disk_size: 10}\nrun: torchrun t.py\n"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [("train.sh", SCRIPT, 4), ("job.sbatch", SBATCH, 2), ("sky.yaml", SKY, 1)],
)
def test_the_file_of_another_tool(folder: Path, name: str, text: str, line: int) -> None:
    (folder / name).write_text(text)
    done = invoke("init", "--from", name)
    assert (done.exit_code, "--takes" in done.stderr) == (2, True), done.stderr
    assert not (folder / "job.yaml").exists()
    done = invoke("init", "--from", name, *ANSWERS[2:])
    assert done.exit_code == 0, done.stderr
    assert f"{name}:{line}: " in " ".join(done.stderr.split())
    found = job(folder)
    if name == "train.sh":
        assert Path(found.workdir) == folder / "code"
    else:
        assert found.resources.min_gpus == 8
    assert ("--region us-east-1" in done.stderr) == (name == "sky.yaml")


def test_a_job_file_is_not_read_as_another_tools(folder: Path) -> None:
    (folder / "mine.yaml").write_text("kind: job\nname: x\nrun: y\n")
    done = invoke("init", "--from", "mine.yaml", *ANSWERS[2:])
    assert done.exit_code == 2
    assert "mine.yaml" in done.stderr
