"""Workloads as files, their windows, and the commands around them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.domain.errors import WorkloadError
from costopt.workload.formats import import_workload
from costopt.workload.statistics import mean_demand_gpus
from costopt.workload.workload import Workload
from costopt.workload.workload_file import read_workload, write_workload

START_AT = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = """\
job_id,tenant,name,submit_s,duration_s,gpus,smallest_gpus,largest_gpus,work_declared,usd_per_hour_waited,speeds
a,vision,train,-90000,3600,8,2,16,yes,2,2:3 8:10 16:14
b,speech,train,10,7200,1,,,,1,
c,vision,,86400,60,4,,,no,0.5,
"""


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    path = tmp_path / "record.csv"
    path.write_text(ROWS)
    return import_workload(path, "csv", start_at=START_AT)[0]


@pytest.mark.parametrize("name", ["jobs.parquet", "jobs.csv"])
def test_a_file_holds_what_was_written(tmp_path: Path, workload: Workload, name: str) -> None:
    write_workload(workload, tmp_path / name)
    again = read_workload(tmp_path / name)
    assert again.jobs == workload.jobs
    assert again.tenants == ("speech", "vision")
    assert (again.weights == [2, 1, 0.5]).all()


def test_a_wrong_row_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,tenant,submit_at,duration_s,gpus\n"
        "a,vision,2026-03-01T00:00:00Z,60,1\n"
        "b,vision,2026-03-01T00:00:00Z,-60,1\n"
    )
    with pytest.raises(WorkloadError, match=r"line 3, column duration_s") as raised:
        read_workload(path)
    assert raised.value.code == "invalid_row"


def test_values_of_some_jobs_only_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.csv"
    path.write_text(ROWS.replace(",,1,\n", ",,,\n"))
    with pytest.raises(WorkloadError) as raised:
        import_workload(path, "csv", start_at=START_AT)
    assert raised.value.code == "partial_values"


def test_a_window_knows_only_what_had_ended(workload: Workload) -> None:
    inside, before = workload.window(START_AT, 1)
    assert [job.job_id for job in inside.jobs] == ["b"]
    assert [job.job_id for job in before.jobs] == ["a"]
    assert inside.submit_s.tolist() == [10]
    assert mean_demand_gpus(inside, 86_400).tolist() == [7200 / 86_400, 0]
    with pytest.raises(WorkloadError):
        workload.window(datetime(2027, 1, 1, tzinfo=UTC), 1)


def test_import_and_show(tmp_path: Path) -> None:
    record, out = tmp_path / "record.csv", tmp_path / "jobs.parquet"
    record.write_text(ROWS + "d,vision,,0,-1,4,,,no,1,\n")
    arguments = ["fleet", "workloads", "import", str(record), "--format", "csv", "--out", str(out)]
    done = CliRunner().invoke(cli, [*arguments, "--start", "2026-03-01T00:00:00Z"])
    assert done.exit_code == 0
    assert "column duration_s: is negative (line 5)" in done.stderr
    shown = CliRunner().invoke(cli, ["fleet", "workloads", "show", str(out), "-o", "json"])
    document = json.loads(shown.stdout)
    assert [(row["name"], row["jobs"]) for row in document["rows"]] == [
        ("vision", 2), ("speech", 1), ("all", 3)
    ]  # fmt: skip
    assert document["rows"][-1]["gpu_hours"] == pytest.approx(8 + 2 + 4 / 60)
