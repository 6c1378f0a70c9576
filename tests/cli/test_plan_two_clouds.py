"""costopt plan over EC2 and Compute Engine at once, over HTTP against both test clouds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from tests.support.aws.cloud import Cloud
from tests.support.gcp.cloud import Cloud as Gcp

NOW = datetime.now(UTC)
JOB = """
kind: job
version: 1
name: tuning
work: {{amount: 36000, unit: samples}}
deadline: 24h
resources: {{gpu_models: [L4], min_gpus: 1, max_gpus: 1}}
throughput: {{points: [{{gpu: L4, gpus: 1, units_per_s: 1.0}}]}}
checkpoint: {{uri: checkpoints, size_gib: 1, save: 10s, restore: 10s}}
data: {{uri: "s3://data/x", size_gib: {gib}, region: {region}}}
startup: 2m
run: [python, train.py]
"""
ACCOUNT = """
providers:
  aws: {{regions: [us-east-1], instance_types: [g6.xlarge], scored_nodes: null}}
  gcp:
    regions: [us-central1]
    instance_types: [g2-standard-4]
    project: project-1
    endpoint: {endpoint}
"""
AWS, GCP = "aws/us-east-1", "gcp/us-central1"


@pytest.fixture
def both(cloud: Cloud, gcp_cloud: Gcp, tmp_path: Path) -> Path:
    """L4 on spot: $0.40 an hour from Amazon, $0.25 from Google."""
    cloud.listed.list("us-east-1", "g6.xlarge", 0.8, bucket=0)
    cloud.spot.price("us-east-1a", "g6.xlarge", 0.40, NOW - timedelta(hours=2))
    gcp_cloud.region("us-central1", "us-central1-a")
    gcp_cloud.price("us-central1", "g2-standard-4", 0.25)
    gcp_cloud.place.shares["us-central1-a", "g2-standard-4"] = [0.05] * 30
    (tmp_path / "account.yaml").write_text(ACCOUNT.format(endpoint=gcp_cloud.endpoint))
    return tmp_path


def chosen(folder: Path, gib: float, region: str) -> str:
    """The region of the plan."""
    (folder / "job.yaml").write_text(JOB.format(gib=gib, region=region))
    asked = ["plan", str(folder / "job.yaml"), "--market", "live"]
    asked += ["--account", str(folder / "account.yaml"), "--output", "json"]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    (pool,) = {row["pool"] for row in rows if row["chosen"]}
    return "/".join(str(pool).split("/")[:2])


def test_the_cheaper_cloud_wins_where_little_is_to_be_moved(both: Path) -> None:
    """Ten hours save $1.50, and 5 GiB out of Amazon cost 45 cents."""
    assert chosen(both, 5, AWS) == GCP


def test_the_cheaper_cloud_loses_because_of_egress(both: Path) -> None:
    """Ten hours save $1.50, and 100 GiB out of Amazon cost $9."""
    assert chosen(both, 100, AWS) == AWS


def test_data_that_lies_with_the_cheaper_cloud_costs_nothing(both: Path) -> None:
    assert chosen(both, 100, GCP) == GCP
