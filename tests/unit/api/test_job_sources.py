"""A job in Python: a file, its text, its fields; names and durations as people write them."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import textwrap
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import costopt as co
from costopt.spec import STARTER_JOB
from costopt.spec.yaml_document import SpecFileError
from tests.support.errors import has_code

FIELDS = {
    "name": "tune",
    "work": {"amount": 1000, "unit": "steps"},
    "deadline": "13h",
    "throughput": {"points": [{"gpu": "A100", "gpus": 8, "units_per_s": 0.05}]},
    "checkpoint": {"uri": Path("checkpoints"), "save": timedelta(seconds=10)},
}
NOW = datetime(2026, 6, 20, tzinfo=UTC)


def test_a_path_a_text_and_fields_are_the_same_job() -> None:
    of_file = co.load_job(STARTER_JOB, now=NOW)
    of_text = co.load_job(STARTER_JOB.read_text(encoding="utf-8"), now=NOW)
    assert (of_text.work, of_text.throughput) == (of_file.work, of_file.throughput)
    job = co.load_job(FIELDS, now=NOW)
    assert job.deadline_at == NOW + timedelta(hours=13)
    assert job.checkpoint.save_s == 10
    assert job.checkpoint.uri == str(Path("checkpoints").resolve())


def test_a_job_in_a_person_s_words() -> None:
    now = datetime.now(UTC)
    job = co.job(
        "torchrun train.py --lr 1e-4", work="10 epochs", takes="40m per epoch on 1xA100",
        due="13h", checkpoint="s3://bucket/place", env={"SEED": "1"}, now=now,
    )  # fmt: skip
    assert (job.work.amount, job.work.unit) == (10, "epochs")
    assert job.run == ("torchrun", "train.py", "--lr", "1e-4")
    assert job.deadline_at == now + timedelta(hours=13)
    assert job.env == (("SEED", "1"),)
    (point,) = job.throughput.points
    assert point.gpus == 1
    assert point.units_per_s == pytest.approx(1 / 2400)
    assert co.plan(job).is_feasible


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        ("command", {"command": "echo 'x"}),
        ("takes", {"work": "some"}),
        ("takes", {"takes": "long"}),
        ("takes", {"takes": "1s per step on 1xA100"}),
        ("due", {"due": "soon"}),
    ],
)
def test_an_unclear_word_is_named(argument: str, changed: dict[str, str]) -> None:
    said: dict[str, Any] = {
        "command": "python train.py",
        "work": "10 epochs",
        "takes": "40m per epoch on 1xA100",
        "due": "13h",
    }
    with pytest.raises(co.SpecError, check=has_code("bad_argument", argument)):
        co.job(**(said | changed))


def test_a_plan_takes_the_file_the_market_s_name_and_a_duration() -> None:
    market = co.read_market("sample")
    loaded = co.load_job(STARTER_JOB, now=market.first_priced_at)
    planned = co.plan(str(STARTER_JOB), market="sample", deadlines="20h")
    assert planned.job.deadline_at == loaded.start_at + timedelta(hours=20)
    assert planned.is_feasible
    assert co.plan(FIELDS, market="sample").job.start_at == market.first_priced_at


def test_a_comparison_takes_durations_and_a_list_of_files() -> None:
    compared = co.what_if(FIELDS, "cheapest", deadlines=["13h", 72_000, timedelta(days=1)],
                          market="sample", points=0)  # fmt: skip
    spans = [(s.job.until_at - s.job.start_at).total_seconds() for s in compared.scenarios]
    assert spans == [13 * 3600, 72_000, 86_400]
    other = {**FIELDS, "name": "other", "checkpoint": {"uri": "elsewhere"}}
    assert co.plan_jobs([FIELDS, other], market="sample").made.jobs[1].name == "other"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({**FIELDS, "deadline": "soon"}, "deadline"),
        ({**FIELDS, "checkpoint": {"uri": object()}}, "checkpoint.uri"),
        ({**FIELDS, "phases": [{"name": "warm-up", "share": "all"}]}, "phases[0].share"),
        ({**FIELDS, "works": 3}, "works"),
    ],
)
def test_a_wrong_field_is_named_without_a_line(fields: dict[str, object], where: str) -> None:
    with pytest.raises(SpecFileError) as caught:
        co.load_job(fields, now=NOW)
    assert where in [problem.field for problem in caught.value.problems]
    assert all(problem.line == 0 for problem in caught.value.problems)


def test_an_account_may_be_a_path(tmp_path: Path) -> None:
    path = tmp_path / "account.yaml"
    path.write_text("tenants: [{name: vision}]\n")
    with pytest.raises(co.SpecError):
        co.plan(FIELDS, market="sample", account=path)
    job = co.load_job(FIELDS, now=NOW)
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "job")):
        co.plan(job, market="sample", account=path)


def test_a_job_is_shown_in_one_line() -> None:
    shown = repr(co.load_job(FIELDS, now=NOW))
    assert shown == "Job('tune', 1,000 steps, due 2026-06-20 13:00Z)"


def test_no_submodule_takes_the_place_of_a_public_name() -> None:
    for found in pkgutil.iter_modules(co.__path__):
        assert found.name not in co.__all__
    for found in pkgutil.walk_packages(co.__path__, "costopt."):
        if not found.name.endswith("__main__"):
            # Some need a package that is not installed everywhere.
            with suppress(ImportError):
                importlib.import_module(found.name)
    assert co.plan(FIELDS, market="sample").is_feasible
    assert callable(co.what_if)
    assert callable(co.backtest)
    assert callable(co.frontier)


def test_libraries_print_nothing() -> None:
    script = f"import costopt; costopt.plan({str(STARTER_JOB)!r}, market='sample')"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
