"""costopt market record against the test cloud, over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.domain.market import CapacityType, Pool
from costopt.market.history_file import read_history
from costopt.market.recorder import parts_folder
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import fail, throttle, unauthorized

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC).replace(microsecond=0)
JOB = """
kind: job
version: 1
name: tuning
work: {amount: 36000, unit: samples}
deadline: 24h
resources: {gpu_models: [L40S], min_gpus: 1, max_gpus: 1, min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: L40S, gpus: 1, units_per_s: 1.0}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 10s, restore: 10s}
startup: 2m
run: [python, train.py]
"""
KINDS = ("g6e.xlarge", "g6e.2xlarge", "g6.xlarge")


def record(out: Path, *more: str, regions: str = "us-east-1", types: str = "g6*") -> Result:
    arguments = ["market", "record", "--provider", "aws", "--regions", regions, "--types", types]
    return CliRunner().invoke(cli, [*arguments, "--out", str(out), *more])


def spot(kind: str, zone: str = "use1-az6", region: str = "us-east-1") -> Pool:
    return Pool("aws", region, zone, kind, CapacityType.SPOT)


@pytest.fixture
def priced(cloud: Cloud) -> Cloud:
    for region in ("us-east-1", "us-west-2"):
        for kind in KINDS:
            cloud.listed.list(region, kind, 2.0)
            for zone in "ab":
                for day in range(0, 100, 10):
                    cloud.spot.price(
                        f"{region}{zone}", kind, 0.8 + day / 100, NOW - timedelta(days=day, hours=1)
                    )
    return cloud


def test_ninety_days_are_recorded_though_pages_are_throttled(priced: Cloud, tmp_path: Path) -> None:
    out = tmp_path / "aws.parquet"
    priced.spot.page = 4
    priced.faults.on("ec2", "DescribeSpotPriceHistory", throttle, nth=5)
    begun_at = datetime.now(UTC).replace(microsecond=0)
    done = record(out, types="g6e.xlarge,g6e.2xlarge")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(f"wrote {out}: 8 pools over 90 d, 44 changes")
    history = read_history(out)
    recorded = history.pools[spot("g6e.xlarge")]
    assert [state.price_usd_per_hour for state in recorded.states] == [
        0.8 + day / 100 for day in range(90, -1, -10)
    ]
    assert (history.ends_at - history.starts_at) == timedelta(days=90)
    assert begun_at <= history.ends_at <= datetime.now(UTC)
    assert (
        history.pools[spot("g6e.xlarge").with_capacity_type(CapacityType.ON_DEMAND)]
        .states[0]
        .price_usd_per_hour
    )


def test_a_record_is_planned_on_and_once_filled_replayed(priced: Cloud, tmp_path: Path) -> None:
    out, job = tmp_path / "aws.parquet", tmp_path / "job.yaml"
    job.write_text(JOB, encoding="utf-8")
    assert record(out, types="g6e.xlarge").exit_code == 0
    at = (NOW - timedelta(days=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    arguments = ["plan", str(job), "--market", str(out), "--at", at, "--output", "json"]
    planned = CliRunner().invoke(cli, arguments)
    assert planned.exit_code == 0, planned.stderr
    assert "spot" in planned.stdout
    assert "capacity" in planned.stderr
    filled = CliRunner().invoke(cli, ["market", "fill", str(out), "--out", str(out)])
    assert filled.exit_code == 0, filled.stderr
    arguments = ["backtest", str(job), "--market", str(out), "--policies", "on-demand"]
    replayed = CliRunner().invoke(cli, [*arguments, "--output", "json"])
    assert replayed.exit_code == 0, replayed.stderr
    assert "greedy_spot" in replayed.stdout


def test_run_again_it_asks_only_for_what_is_new(priced: Cloud, tmp_path: Path) -> None:
    out = tmp_path / "aws.parquet"
    assert record(out, types="g6e.xlarge").exit_code == 0
    before = read_history(out)
    priced.spot.page = 3
    priced.faults.calls.clear()
    time.sleep(1.1)
    assert record(out, types="g6e.xlarge").exit_code == 0
    assert priced.faults.calls["ec2", "DescribeSpotPriceHistory"] == 1
    after = read_history(out)
    assert after.ends_at > before.ends_at
    assert after.pools[spot("g6e.xlarge")].states == before.pools[spot("g6e.xlarge")].states


def test_a_region_that_fails_is_reported_and_the_others_are_recorded(
    priced: Cloud, tmp_path: Path
) -> None:
    out = tmp_path / "aws.parquet"
    priced.faults.on("ec2", "DescribeSpotPriceHistory", unauthorized, region="us-west-2")
    done = record(out, regions="us-east-1,us-west-2,us-esat-1", types="g6e.xlarge")
    assert done.exit_code == 0, done.stderr
    assert "'us-esat-1'" in done.stderr
    assert "us-west-2: " in done.stderr
    assert "ec2:DescribeSpotPriceHistory" in done.stderr
    assert ", 1 of 2 parts failed" in done.stderr
    assert {pool.region for pool in read_history(out).pools} == {"us-east-1"}


def test_where_nothing_answers_there_is_one_message(priced: Cloud, tmp_path: Path) -> None:
    priced.faults.on("ec2", "*", fail)
    done = record(tmp_path / "aws.parquet")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: us-east-1: InternalError")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--regions", "us-east-1a"), 1, "the name of an AWS region"),
        (("--provider", "nimbus"), 1, "no provider adapter named 'nimbus'"),
        (("--types", "t9.mega"), 1, "do not sell these types on spot"),
        (("--days", "0"), 2, "--days"),
    ],
)
def test_wrong_options_are_reported(
    priced: Cloud, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = record(tmp_path / "aws.parquet", *arguments)
    assert done.exit_code == code
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_killed_goes_on_where_it_was(priced: Cloud, tmp_path: Path) -> None:
    out, types = tmp_path / "aws.parquet", ",".join(KINDS)
    priced.faults.on("ec2", "DescribeSpotPriceHistory", priced.faults.hang, nth=3, times=99)
    command = [sys.executable, "-m", "costopt", "market", "record", "--provider", "aws"]
    child = subprocess.Popen(
        [*command, "--regions", "us-east-1", "--types", types, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}"},
    )
    try:
        while len(list(parts_folder(out).glob("*.parquet"))) < 2:
            assert child.poll() is None
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not out.exists()
    priced.faults.reset()
    done = record(out, types=types)
    assert done.exit_code == 0, done.stderr
    assert priced.faults.calls["ec2", "DescribeSpotPriceHistory"] == 1
    assert set(read_history(out).pools) >= {spot(kind) for kind in KINDS}
    assert not parts_folder(out).exists()
