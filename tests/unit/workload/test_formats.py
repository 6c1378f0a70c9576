"""Each public format as its publisher documents it, and rows that make no sense."""

# ruff: noqa: E501 - rows as their publishers write them

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.cli import workload as commands
from costopt.domain.errors import WorkloadError
from costopt.workload.formats import FORMAT_NAMES, import_workload
from costopt.workload.rows import LeftOut

START_AT = datetime(2023, 1, 1, tzinfo=UTC)

PHILLY = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1506638472019_14199",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:09",
                "end_time": "2017-10-07 01:13:23",
                "detail": [{"ip": "m47", "gpus": [f"gpu{index}" for index in range(8)]}],
            },
            {
                "start_time": "2017-10-07 01:13:30",
                "end_time": "2017-10-09 06:53:12",
                "detail": [{"ip": "m412", "gpus": [f"gpu{index}" for index in range(8)]}],
            },
        ],
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
    },
    {"status": "Killed", "vc": "ee9e8c", "jobid": "b", "attempts": [],
     "submitted_time": "2017-10-07 01:11:39", "user": "u"},
    {"status": "Killed", "vc": "ee9e8c", "jobid": "c", "submitted_time": "2017-10-07 01:11:39",
     "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": None,
                   "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}], "user": "u"},
]  # fmt: skip
ACME = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlctk,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlcno,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:00:58+00:00,,,,,,,
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,0,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:45:36,2020-06-09 18:41:27,-249,0
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497
openb-pod-0022,4000,15258,1,220,,BE,Running,9679175,9973826,9679175
openb-pod-0023,4000,15258,1,220,,BE,Pending,9679175,9973826,
"""
SPOT = """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
239255,13,A10,20,1,1,0,2764799,HP
437260,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot
437261,57,A100-SXM4-80GB,15,1,16,9589663,-5,Spot
"""
SACCT = """\
JobID|Account|JobName|State|Submit|Start|End|AllocTRES
12|vision|train|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:05:00|2026-01-05T12:05:00|billing=8,cpu=64,gres/gpu:h100=8,gres/gpu=8,mem=512G,node=1
13|vision|train|CANCELLED by 1001|2026-01-05T10:00:00|2026-01-05T10:05:00|2026-01-05T10:06:00|cpu=4,gres/gpu:a100=2,mem=4G
14|vision|prep|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:05:00|2026-01-05T10:06:00|cpu=4,mem=4G
15|vision|train|PENDING|2026-01-05T10:00:00|Unknown|Unknown|
"""
OWN = """\
job_id,tenant,submit_s,duration_s,gpus,smallest_gpus,largest_gpus,work_declared,speeds
a,vision,-60,100,4,2,8,yes,2:10 4:18 8:31
b,speech,30,50.5,1,,,,
"""
RECORDS = {
    "philly": json.dumps(PHILLY), "acme": ACME, "helios": HELIOS, "alibaba-gpu": OPENB,
    "alibaba-spot": SPOT, "sacct": SACCT, "csv": OWN,
}  # fmt: skip


def _import(
    tmp_path: Path, form: str, text: str | None = None, tenant: str | None = None
) -> tuple[list[object], tuple[LeftOut, ...]]:
    path = tmp_path / "record.txt"
    path.write_text(RECORDS[form] if text is None else text)
    workload, left = import_workload(path, form, start_at=START_AT, tenant=tenant)
    rows: list[object] = [(j.job_id, j.tenant, j.gpus, j.duration_s) for j in workload.jobs]
    return rows, left


RECORDED_SACCT = """\
JobID|Account|JobName|State|Submit|Start|End|AllocTRES
1|vision|train|big|COMPLETED|2026-11-25T21:06:47|2026-11-25T21:06:47|2026-11-25T21:06:51|billing=1,cpu=1,gres/gpu=8,mem=32000M,node=1
2|speech|evaluate|FAILED|2026-11-25T21:06:47|2026-11-25T21:06:47|2026-11-25T21:06:50|billing=2,cpu=2,gres/gpu=8,mem=62.50G,node=2
3|vision|cancelled one|CANCELLED by 0|2026-11-25T21:06:47|2026-11-25T21:06:47|2026-11-25T21:07:06|billing=1,cpu=1,gres/gpu=2,mem=32000M,node=1
5|vision|no gpu|COMPLETED|2026-11-25T21:06:47|2026-11-25T21:06:52|2026-11-25T21:06:54|billing=1,cpu=1,mem=32000M,node=1
6|speech|preempted|RUNNING|2026-11-25T21:06:47|2026-11-25T21:07:09|Unknown|billing=4,cpu=4,gres/gpu=32,mem=125G,node=4
4_0|speech|sweep|COMPLETED|2026-11-25T21:06:47|2026-11-25T21:06:51|2026-11-25T21:06:52|billing=1,cpu=1,gres/gpu=1,mem=32000M,node=1
4_1|speech|sweep|COMPLETED|2026-11-25T21:06:47|2026-11-25T21:06:51|2026-11-25T21:06:52|billing=1,cpu=1,gres/gpu=1,mem=32000M,node=1
4_2|speech|sweep|COMPLETED|2026-11-25T21:06:47|2026-11-25T21:06:52|2026-11-25T21:06:53|billing=1,cpu=1,gres/gpu=1,mem=32000M,node=1
9|vision|others|COMPLETED|2026-11-25T21:07:01|2026-11-25T21:07:06|2026-11-25T21:07:09|billing=32,cpu=32,gres/gpu=32,mem=125G,node=4
"""
"""What Slurm 22.05 printed from its accounting database: a job failed, one was cancelled, one had no
GPU, three were an array, and one was preempted and runs again."""


def test_the_command_offers_every_format() -> None:
    assert commands.FORMAT_NAMES == FORMAT_NAMES


@pytest.mark.parametrize(
    ("form", "jobs", "left"),
    [
        ("philly", [("application_1506638472019_14199", "ee9e8c", 8, 74 + 193_182)],
         {("attempts", 2), ("attempts", 3)}),
        ("acme", [("dlctk", "uf794", 64, 8)], {("end_time", 3)}),
        ("helios", [("1425511", "vcJkd", 1, 36_848)], {("gpu_num", 3), ("end_time", 4)}),
        ("alibaba-gpu", [("openb-pod-0017", "Burstable", 8, 1_332_357),
                         ("openb-pod-0022", "BE", 1, 294_651)], {("scheduled_time", 4)}),
        ("alibaba-spot", [("239255", "13", 1, 2_764_799), ("437260", "57", 16, 41_060)],
         {("duration", 4)}),
        ("sacct", [("12", "vision", 8, 7200), ("13", "vision", 2, 60)],
         {("AllocTRES", 4), ("AllocTRES", 5)}),
        ("csv", [("a", "vision", 4, 100), ("b", "speech", 1, 50.5)], set()),
    ],
)  # fmt: skip
def test_each_documented_form_is_read(
    tmp_path: Path, form: str, jobs: list[object], left: set[tuple[str, int]]
) -> None:
    read, left_out = _import(tmp_path, form)
    assert read == jobs
    assert {(each.column, each.first_line) for each in left_out} == left
    assert all(each.rows == 1 for each in left_out)


def test_a_recorded_accounting_database_is_read(tmp_path: Path) -> None:
    read, left = _import(tmp_path, "sacct", RECORDED_SACCT)
    assert read == [
        ("1", "vision", 8, 4), ("2", "speech", 8, 3), ("3", "vision", 2, 19),
        ("4_0", "speech", 1, 1), ("4_1", "speech", 1, 1), ("4_2", "speech", 1, 1),
        ("9", "vision", 32, 3),
    ]  # fmt: skip
    assert {(each.column, each.first_line) for each in left} == {("AllocTRES", 5), ("End", 6)}
    workload, _ = import_workload(tmp_path / "record.txt", "sacct")
    names = [job.name for job in workload.jobs]
    assert names[:2] == ["train|big", "evaluate"]


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ("a,t,0,-5,1,,,,", "duration_s"),
        ("a,t,0,nan,1,,,,", "duration_s"),
        ("a,t,0,5,1.5,,,,", "gpus"),
        ("a,t,0,5,0,,,,", "gpus"),
        ("a,t,0,5,4,8,,,", "smallest_gpus"),
        ("a,t,0,5,4,,2,,", "largest_gpus"),
        ("a,,0,5,4,,,,", "tenant"),
        ("a,t,0,5,4,,,maybe,", "work_declared"),
        ("a,t,0,5,4,,,,4:2 2:1", "speeds"),
        ("a,t,0,5,4,,,,2:1 8:3", "speeds"),
        ("a,t,0,5,4,,,,4:fast", "speeds"),
        ("b,t,0,5,4,,,,", "job_id"),
    ],
)
def test_impossible_rows_are_named(tmp_path: Path, cells: str, column: str) -> None:
    header = OWN.splitlines()[0]
    text = f"{header}\nb,t,0,5,1,,,,\n{cells}\n"
    rows, left = _import(tmp_path, "csv", text)
    assert rows == [("b", "t", 1, 5)]
    assert [(each.column, each.first_line) for each in left] == [(column, 3)]


def test_a_record_without_tenants_needs_one(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,gpus\na,0,5,1\n"
    with pytest.raises(WorkloadError) as raised:
        _import(tmp_path, "csv", text)
    assert raised.value.code == "no_tenant"
    assert _import(tmp_path, "csv", text, tenant="all")[0] == [("a", "all", 1, 5.0)]


def test_relative_times_need_a_start(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(SPOT)
    with pytest.raises(WorkloadError) as raised:
        import_workload(path, "alibaba-spot")
    assert raised.value.code == "no_start"


@pytest.mark.parametrize("form", ["philly", "helios"])
def test_another_form_is_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(WorkloadError):
        _import(tmp_path, form, SPOT)


CSV = "job_id,tenant,submit_at,duration_s,gpus\nj0,a,2026-01-02T04:00:00Z,60,8\n"


def test_an_empty_time_of_submission_is_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text(
        CSV + "j1,a,,60,1\nj2,a,0001-01-01T00:00:00+09:00,60,1\nj3,a,2026-01-02,1e99,1\n"
    )
    made, left = import_workload(path, "csv")
    assert [job.job_id for job in made.jobs] == ["j0"]
    assert {(each.column, each.first_line) for each in left} == {
        ("submit_at", 3), ("submit_at", 4), ("duration_s", 5),
    }  # fmt: skip


def test_an_empty_time_is_left_out_beside_times_from_a_start(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("job_id,tenant,submit_at,submit_s,duration_s,gpus\nj0,a,,5,60,8\nj1,a,,,60,1\n")
    made, (left,) = import_workload(path, "csv", start_at=START_AT)
    assert len(made.jobs) == 1
    assert left.column == "submit_s"


@pytest.mark.parametrize("name", ["w.csv", "w.csv.gz", "w"])
def test_gzip_is_known_by_its_first_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for data in (CSV.encode(), gzip.compress(CSV.encode())):
        path.write_bytes(data)
        made, left = import_workload(path, "csv")
        assert (len(made.jobs), left) == (1, ())
    path.write_bytes(gzip.compress(json.dumps(PHILLY).encode()))
    assert len(import_workload(path, "philly")[0].jobs) == 1


OTHER_FILES = {
    "bzip2": bz2.compress(CSV.encode()),
    "xz": lzma.compress(CSV.encode()),
    "zip": b"PK\x03\x04 w.csv",
    "zstd": b"\x28\xb5\x2f\xfd\x00",
    "parquet": b"PAR1\x15\x04",
    "cut gzip": gzip.compress(CSV.encode())[:-9],
    "json": b'[{"a": [1, 2]}]',
    "csv": CSV.encode(),
    "xml": b"<jobs/>",
    "binary": bytes(range(256)),
    "quoted": b'job_id,"' + b"x" * 200_000,
    "empty": b"",
    "brackets": b"[" * 100_000,
    "attempts": b'[{"jobid": "j", "vc": "a", "submitted_time": "2026-01-01", "attempts": [3]}]',
    "attempt": b'[{"jobid": "j", "vc": "a", "submitted_time": "2026-01-01", "attempts": 3}]',
}


@pytest.mark.parametrize("form", FORMAT_NAMES)
@pytest.mark.parametrize("name", OTHER_FILES)
def test_a_file_of_another_form_is_refused_in_words(tmp_path: Path, name: str, form: str) -> None:
    if (name, form) == ("csv", "csv"):
        return
    path = tmp_path / "record"
    path.write_bytes(OTHER_FILES[name])
    with pytest.raises(WorkloadError, match=re.escape(str(path))):
        import_workload(path, form, start_at=START_AT)
