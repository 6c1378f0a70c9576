"""Plans, runs and reports of an account with prices, discounts and commitments of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import invoke

JOB = """\
name: tune
work: {amount: 1e8, unit: tokens}
deadline: 48h
resources: {gpu_models: [L4], max_nodes: 2}
throughput: {flops_per_unit: 4.8e10, mfu: 0.3}
checkpoint: {uri: checkpoints, save: 10s, restore: 1m}
startup: 6m
"""
ACCOUNT = """\
kind: account
discounts:
  - {name: edp, provider: aws, percent: 50}
  - {name: old, provider: gcp, percent: 5, last_day: 2020-01-31}
commitments:
  - {name: sp, kind: savings_plan, provider: aws, instance_types: [g6.*], usd_per_hour: 2,
     rates: {g6.xlarge: 0.5}}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """The job's and the account's file."""
    job, account = tmp_path / "tune.yaml", tmp_path / "account.yaml"
    job.write_text(JOB)
    account.write_text(ACCOUNT)
    return str(job), str(account)


def planned(*arguments: str) -> dict[str, Any]:
    done = invoke("plan", *arguments, "--policy", "on-demand", "--top", "0", "-o", "json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def prices(result: dict[str, Any]) -> dict[str, float]:
    return {row["pool"]: row["price_usd_per_hour"] for row in result["rows"]}


def test_a_plan_uses_the_commitment_and_the_account_s_prices(files: tuple[str, str]) -> None:
    job, account = files
    listed, own = prices(planned(job)), planned(job, "--account", account)
    paid = prices(own)
    halved = [pool for pool in paid if pool in listed and pool.startswith("aws/")]
    assert halved
    for pool in halved:
        assert paid[pool] == pytest.approx(listed[pool] / 2)
    chosen = [row for row in own["rows"] if row["chosen"]]
    assert all("#sp/" in row["pool"] for row in chosen)
    assert own["objective_usd"] == 0
    assert all("covered by savings plan sp" in row["price_source"] for row in chosen)


def test_notes_say_what_it_changes_and_what_is_over(files: tuple[str, str]) -> None:
    job, account = files
    said = " ".join(invoke("plan", job, "--account", account, "-p", "on-demand").stderr.split())
    assert "your discount old ended on 2020-01-31" in said
    assert "at list prices and add $0.00 to your bill" in said
    assert "of sp while they run" in said


def test_what_if_counts_the_same_prices(files: tuple[str, str]) -> None:
    job, account = files
    done = invoke(
        "what-if", job, "--account", account, "--policies", "on-demand", "--points", "0",
        "-o", "json",
    )  # fmt: skip
    (row,) = json.loads(done.stdout)["rows"]
    assert row["usd_p50"] == 0
