"""costopt plan on what EC2 offers now, over HTTP against the test cloud."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import fail, unauthorized

NOW = datetime.now(UTC)
JOB = """
kind: job
version: 1
name: tuning
work: {amount: 36000, unit: samples}
deadline: 24h
resources: {gpu_models: [L40S], min_gpus: 1, max_gpus: 2, min_nodes: 1, max_nodes: 2}
throughput: {points: [{gpu: L40S, gpus: 1, units_per_s: 1.0}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 10s, restore: 10s}
startup: 2m
run: [python, train.py]
"""
ACCOUNT = """
providers:
  aws: {regions: [us-east-1, us-west-2], instance_types: [g6e.xlarge]}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    (tmp_path / "account.yaml").write_text(ACCOUNT, encoding="utf-8")
    return str(tmp_path / "job.yaml"), str(tmp_path / "account.yaml")


@pytest.fixture
def priced(cloud: Cloud) -> Cloud:
    for region, usd in (("us-east-1", 0.9), ("us-west-2", 0.7)):
        cloud.listed.list(region, "g6e.xlarge", 1.861, bucket=1)
        cloud.spot.price(f"{region}a", "g6e.xlarge", usd, NOW - timedelta(hours=2))
    return cloud


def plan(files: tuple[str, str], *more: str) -> Result:
    job, account = files
    arguments = ["plan", job, "--market", "live", "--account", account, "--output", "json"]
    return CliRunner().invoke(cli, [*arguments, *more])


def chosen(done: Result) -> set[str]:
    assert done.exit_code == 0, done.stderr
    return {row["pool"] for row in json.loads(done.stdout)["rows"] if row["chosen"]}


def test_the_cheapest_live_pool_is_planned_on(priced: Cloud, files: tuple[str, str]) -> None:
    assert chosen(plan(files)) == {"aws/us-west-2/usw2-az2/g6e.xlarge/spot"}


def test_a_region_that_is_down_leaves_the_other(priced: Cloud, files: tuple[str, str]) -> None:
    priced.faults.on("ec2", "*", fail, region="us-west-2")
    done = plan(files, "--explain")
    assert chosen(done) == {"aws/us-east-1/use1-az6/g6e.xlarge/spot"}
    assert "us-west-2: InternalError" in done.stdout


def test_the_accounts_quotas_bind(priced: Cloud, files: tuple[str, str]) -> None:
    for code in ("L-3819A6DF", "L-DB2E81BA"):
        priced.limits.quotas[code] = (priced.limits.quotas[code][0], 3.0)
    done = plan(files)
    assert done.exit_code == 3
    assert "L-3819A6DF" in done.stdout + done.stderr


def test_quotas_that_cannot_be_read_are_reported(priced: Cloud, files: tuple[str, str]) -> None:
    priced.faults.on("servicequotas", "ListServiceQuotas", unauthorized)
    done = plan(files)
    assert chosen(done)
    assert done.stderr.startswith("note: ")
    assert "servicequotas:ListServiceQuotas" in done.stderr
