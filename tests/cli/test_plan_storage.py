"""What `costopt plan` says of keep rules and intervals that cost more than they save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli

JOB = """\
name: big
deadline: 60d
model: {params: 70e9, method: pretrain, tokens: 30e9, sequence: 4096}
resources: {gpu_models: [H100], min_nodes: 8, max_nodes: 8}
checkpoint: {uri: "s3://bucket/big", region: aws/us-east-1, SAVES}
run: [python, train.py]
"""


@pytest.mark.parametrize(
    ("saves", "said"),
    [
        ("save: 10s", set()),
        ("save: 10s, interval: 1m", {"checkpoint.interval"}),
        ("save: 10s, keep_every: 1e9", {"milestones stay"}),
        ("save: 10s, keep: 99", {"keep rule"}),
    ],
)
def test_a_plan_says_what_costs_more_than_it_saves(
    tmp_path: Path, saves: str, said: set[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("SAVES", saves))
    printed = " ".join(CliRunner().invoke(cli, ["plan", str(path)]).output.split())
    found = {each for each in ("checkpoint.interval:", "milestones stay", "keep rule costs")
             if each in printed}  # fmt: skip
    assert {each for each in found if any(word in each for word in said)} == found
    assert len(found) == len(said)


def test_what_stays_when_the_job_is_over_costs_by_the_month(tmp_path: Path) -> None:
    """Three checkpoints of 1,000 GiB at $0.023 a GiB and month (S3 Standard, us-east-1)."""
    path = tmp_path / "job.yaml"
    short = JOB.replace("tokens: 30e9", "tokens: 1e8").replace("60d", "5d")
    path.write_text(short.replace("SAVES", "save: 10s, size_gib: 1000"))
    done = CliRunner().invoke(cli, ["plan", str(path), "-o", "json"])
    after_usd = json.loads(done.stdout)["storage"]["usd_per_month_after"]
    assert after_usd == pytest.approx(3 * 1000 * 0.023, rel=0.1)
    printed = " ".join(CliRunner().invoke(cli, ["plan", str(path)]).output.split())
    assert "3 checkpoints stay when the job is over: $" in printed
