"""What `costopt plan` says of keep rules and intervals that cost more than they save."""

from __future__ import annotations

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
