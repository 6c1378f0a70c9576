"""The commands that need no run: schema, validate, catalog, market, doctor."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.support.command_line import invoke
from tests.support.errors import failure

JOB = """\
name: char-gpt
work: {amount: 400, unit: steps}
deadline: 72h
throughput: {points: [{gpu: T4, units_per_s: 9.5}]}
checkpoint: {uri: checkpoints}
"""


@pytest.mark.parametrize("kind", ["job", "policy", "account"])
def test_schema_prints_json_schema(kind: str) -> None:
    reported = json.loads(invoke("schema", kind).stdout)
    assert reported["$id"] == f"urn:costopt:schema:{kind}:1"
    assert reported["additionalProperties"] is False


def test_validate_passes_good_files(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    done = invoke("validate", job, "cheapest")
    assert done.exit_code == 0
    reported = json.loads(invoke("validate", job, "cheapest", "-o", "json").stdout)
    assert [(row["file"], row["kind"], row["valid"]) for row in reported["rows"]] == [
        (str(job), "job", True),
        ("cheapest", "policy", True),
    ]


def test_validate_tells_every_problem_of_every_file(tmp_path: Path) -> None:
    job, policy = tmp_path / "job.yaml", tmp_path / "policy.yaml"
    job.write_text(JOB.replace("72h", "72x").replace("T4", "T5").replace("steps", "miles"))
    policy.write_text("name: x\nstrategy: mlip\n")
    done = invoke("validate", job, policy, tmp_path / "missing.yaml")
    assert done.exit_code == 2
    assert f"{job}:2:27: work.unit: " in done.stderr
    assert f"{job}:3:11: deadline: " in done.stderr
    assert f"{policy}: strategy: " in done.stderr
    assert "'mlip'" in done.stderr
    assert f"{tmp_path / 'missing.yaml'}: " in done.stderr
    assert done.stdout == ""


def test_validate_tells_programs_the_place(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("72h", "72x"))
    done = invoke("validate", "--output", "json", job)
    assert done.exit_code == 2
    reported = json.loads(done.stdout)
    assert reported["schema"] == "costopt.validate/1"
    (row,) = reported["rows"]
    assert (row["line"], row["column"], row["field"]) == (3, 11, "deadline")


def test_catalog_filters_by_gpu_and_provider() -> None:
    reported = json.loads(
        invoke("catalog", "--gpu", "H100", "--provider", "aws", "-o", "json").stdout
    )
    assert reported["schema"] == "costopt.catalog/1"
    names = {row["instance_type"] for row in reported["rows"]}
    assert "p5.48xlarge" in names
    for row in reported["rows"]:
        assert row["gpu_model"].startswith("H100")
        assert row["provider"] == "aws"
        assert row["idle_w"] < row["busy_w"]
        assert row["source"]


def test_catalog_takes_the_prices_of_one_region() -> None:
    rows = json.loads(invoke("catalog", "--region", "us-east-1", "-o", "json").stdout)["rows"]
    assert rows
    regions = {row["on_demand_region"] for row in rows} | {row["spot_region"] for row in rows}
    assert regions <= {"us-east-1", None}


def test_catalog_lists_regions() -> None:
    reported = json.loads(invoke("catalog", "--regions", "--provider", "gcp", "-o", "json").stdout)
    assert reported["schema"] == "costopt.regions/1"
    assert {row["provider"] for row in reported["rows"]} == {"gcp"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "H1000"), "did you mean H100"),
        (("--provider", "awz"), "one of: aws, gcp"),
        (("--region", "us-eats-1"), "did you mean 'us-east-1'"),
    ],
)
def test_catalog_refuses_what_it_does_not_know(arguments: tuple[str, str], said: str) -> None:
    done = invoke("catalog", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def generated(tmp_path: Path, *more: str) -> Path:
    out = tmp_path / "market.parquet"
    done = invoke(
        "market", "generate", "--gpu", "T4", "--region", "us-east-1", "--zones", "2",
        "--hours", "12", "--out", out, *more,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    return out


def test_market_generate_and_show(tmp_path: Path) -> None:
    out = generated(tmp_path)
    reported = json.loads(invoke("market", "show", "-o", "json", out).stdout)
    assert reported["schema"] == "costopt.market/1"
    assert reported["tick_s"] == 300
    pools = {row["pool"] for row in reported["rows"]}
    assert "aws/us-east-1/us-east-1a/g4dn.xlarge/spot" in pools
    assert "aws/us-east-1/us-east-1b/g4dn.xlarge/on_demand" in pools


def test_the_same_seed_gives_the_same_market(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = generated(tmp_path / "a"), generated(tmp_path / "b")
    assert invoke("market", "show", first).stdout == invoke("market", "show", second).stdout


def test_market_import_reads_gap_seconds_and_takes_prices_from_the_catalogue(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json"
    trace.write_text('{"metadata": {"gap_seconds": 195}, "data": [1, 1, 0, 1, 0]}')
    out = tmp_path / "m.parquet"
    assert invoke("market", "import", trace, "--out", out).exit_code == 0
    reported = json.loads(invoke("market", "show", out, "-o", "json").stdout)
    assert reported["tick_s"] == 195
    spot = next(row for row in reported["rows"] if row["pool"].endswith("/spot"))
    assert spot["interruptions"] == 2
    assert spot["mean_usd_per_hour"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("generate", "--out", "x"), 2, "say which machines"),
        (("generate", "--out", "x", "--gpu", "H1000"), 2, "no GPU model 'H1000'"),
        (("generate", "--out", "x", "--instance-type", "p9.huge"), 2, "no instance type"),
        (("generate", "--out", "x", "--gpu", "T4", "--region", "mars"), 2, "no region 'mars'"),
        (("generate", "--out", "x", "--gpu", "T4", "--start", "2024"), 2, "expected a time"),
        (("generate", "--out", "x", "--gpu", "T4", "--profile", "odd"), 1, "profile 'odd'"),
        (
            ("generate", "--out", "x", "--gpu", "T4", "--start", "9999-12-31T00:00:00Z"),
            1,
            "ends after all dates",
        ),
        (("generate", "--out", "/nowhere/x", "--gpu", "B200", "--hours", "1"), 1, "cannot be"),
        (("import", "{tmp}/odd.json", "--out", "x"), 1, "does not say which machine"),
        (("show", "{tmp}/empty.parquet"), 1, "is empty"),
        (("show", "{tmp}/missing.parquet"), 1, "does not exist"),
        (("show", "{tmp}/odd.json"), 1, "no parquet file"),
    ],
)
def test_market_tells_what_is_wrong(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "odd.json").write_text("{}")
    done = invoke("market", *(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert done.exit_code == code
    assert said in done.stderr
    assert done.stderr.count("error:") == 1


def test_doctor_finds_this_installation_well(tmp_path: Path) -> None:
    done = invoke("doctor", "-o", "json", "--state-dir", tmp_path)
    assert done.exit_code == 0
    verdicts = {row["check"]: row["verdict"] for row in json.loads(done.stdout)["rows"]}
    for essential in ("Python", "solver", "SQLite", "catalogue", "state folder", "clock"):
        assert verdicts[essential] == "ok"
    assert "broken" not in verdicts.values()


def test_doctor_lists_adapters_and_names_one_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = tmp_path / "broken-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    entry = "[costopt.providers]\nmycloud = no_such_module:connect\n"
    (distribution / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(tmp_path)
    done = invoke("doctor", "-o", "json", "--state-dir", tmp_path)
    found = {row["check"]: row for row in json.loads(done.stdout)["rows"]}
    assert {found[f"provider {name}"]["verdict"] for name in ("aws", "gcp", "sim")} == {"ok"}
    assert found["provider mycloud"]["verdict"] == "broken"
    assert "no_such_module" in found["provider mycloud"]["detail"]
    assert done.exit_code == 1


def test_doctor_of_an_unknown_provider_names_those_that_are_installed() -> None:
    for more in ((), ("--regions", "x"), ("--iam-policy",)):
        done = invoke("doctor", "azure", *more)
        assert done.exit_code == 1
        assert "aws, gcp, kubernetes, sim, slurm" in done.stderr
        assert "pip install" not in done.stderr


def test_doctor_takes_the_region_from_the_providers_own_variable_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    assert invoke("doctor", "gcp", "--iam-policy").exit_code == 2
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "us-central1")
    assert invoke("doctor", "gcp", "--iam-policy").exit_code == 0


def test_doctor_fails_where_no_state_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = invoke("doctor", "-o", "json", "--state-dir", tmp_path / "file" / "x")
    assert done.exit_code == 1
    verdicts = {row["check"]: row["verdict"] for row in json.loads(done.stdout)["rows"]}
    assert verdicts["state folder"] == "broken"


def test_market_import_reads_a_table_with_its_own_prices(tmp_path: Path) -> None:
    table = tmp_path / "zones.csv.gz"
    lines = (
        "time_utc_approx,us-east-1a_v100_1_avail,us-east-1a_v100_1_price",
        "2023-02-15T00:00:00,1,1.5",
        "2023-02-15T00:05:00,1,1.75",
        "2023-02-15T00:10:00,0,1.75",
    )
    table.write_bytes(gzip.compress("\n".join(lines).encode()))
    out = tmp_path / "m.parquet"
    assert invoke("market", "import", table, "--out", out).exit_code == 0
    reported = json.loads(invoke("market", "show", out, "-o", "json").stdout)
    spot, on_demand = sorted(reported["rows"], key=lambda row: row["pool"], reverse=True)
    assert spot["pool"] == "aws/us-east-1/us-east-1a/p3.2xlarge/spot"
    assert (spot["min_usd_per_hour"], spot["max_usd_per_hour"]) == (1.5, 1.75)
    assert on_demand["min_usd_per_hour"] == 3.06
    more_expensive = ("market", "import", table, "--out", out, "--on-demand-price", "4")
    assert invoke(*more_expensive).exit_code == 0
    assert "$4.00" in invoke("market", "show", out).stdout


@pytest.mark.parametrize(
    ("record", "more", "code", "named"),
    [
        ("t.csv", ("--spot-price", "1"), 2, "--spot-price"),
        ("t.csv", ("--nodes-per-unit", "2"), 2, "--nodes-per-unit"),
        ("t.csv", (), "missing_column", "time_utc_approx"),
        ("missing.csv.gz", (), "missing", "missing.csv.gz"),
        ("missing.json", (), "missing", "missing.json"),
        ("missing.json", ("--spot-price", "1", "--on-demand-price", "2"), "missing", "missing"),
        ("pipe", (), "not_a_file", "pipe"),
        ("/dev/zero", (), "not_a_file", "/dev/zero"),
        (
            "availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json", ("--spot-price", "0"),
            "impossible_price", "0.0 $/h",
        ),
    ],
)  # fmt: skip
def test_market_import_tells_what_is_wrong(
    tmp_path: Path, record: str, more: tuple[str, ...], code: str | int, named: str
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    os.mkfifo(tmp_path / "pipe")
    name = "availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json"
    (tmp_path / name).write_text('{"metadata": {"gap_seconds": 195}, "data": [1, 0]}')
    done = invoke("market", "import", tmp_path / record, "--out", tmp_path / "x", *more)
    assert (done.exit_code if isinstance(code, int) else failure(done).code) == code
    assert named in done.stderr
    assert done.stderr.count("error:") == 1


def test_spec_files_may_be_pipes_and_none_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "silent")
    done = invoke("validate", tmp_path / "silent", "-o", "json")
    assert done.exit_code == 2
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["file"], row["valid"]) == (str(tmp_path / "silent"), False)
    reading, writing = os.pipe()
    os.write(writing, JOB.encode())
    os.close(writing)
    try:
        assert invoke("validate", f"/dev/fd/{reading}").exit_code == 0
    finally:
        os.close(reading)
