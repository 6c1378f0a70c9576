"""plan and what-if with an account's limits, and with data that lie somewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costopt.market.history_file import write_history
from costopt.spec import SpecFileError
from tests.support.command_line import invoke
from tests.support.errors import failure
from tests.support.live_run import CALM, UNINTERRUPTIBLE, history

JOB = """\
name: char-gpt
tenant: research
work: {amount: 4e5, unit: steps}
deadline: 72h
resources: {gpu_models: [T4], max_nodes: 4}
throughput: {flops_per_unit: 1e13, mfu: 0.4}
checkpoint: {uri: s3://bucket/checkpoints, save: 10s}
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def planned(job: Path, *more: str | Path) -> dict[str, Any]:
    done = invoke("plan", job, "-o", "json", *more)
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def regions(result: dict[str, Any]) -> set[str]:
    """provider/region of all rows that the plan could use."""
    return {"/".join(row["pool"].split("/")[:2]) for row in result["rows"]}


@pytest.mark.parametrize(
    ("account", "said"),
    [
        ("quotas: [{name: no-g, families: [g, n], max_gpus: 1, tenant: research}]", None),
        ("tenants: [{name: research, max_usd_per_hour: 0.01}]", "tenant research"),
        ("tenants: [{name: research, max_usd_per_hour: 0.01}, {name: other}]", "tenant research"),
        ("quotas: [{name: dear, max_usd_per_hour: 0.01}]", "quota: dear"),
    ],
)
def test_an_account_s_limits_bind_a_plan(tmp_path: Path, account: str, said: str | None) -> None:
    job = written(tmp_path, "job.yaml", JOB)
    limits = written(tmp_path, "account.yaml", account + "\n")
    done = invoke("plan", job, "--account", limits)
    assert done.exit_code == (0 if said is None else 3)
    assert (said or "") in done.stderr


def test_a_tenant_that_the_account_does_not_name_is_refused(tmp_path: Path) -> None:
    job = written(tmp_path, "job.yaml", JOB)
    policy = written(tmp_path, "policy.yaml", "name: x\n")
    limits = written(tmp_path, "account.yaml", "tenants: [{name: reserch, max_usd: 5}]\n")
    record = tmp_path / "market.parquet"
    write_history(history(CALM | UNINTERRUPTIBLE), record)
    said = "tenant: 'research' is not a tenant of the account"
    for command in (
        ("validate", job, policy, limits),
        ("validate", limits, job),
        ("plan", job, "--account", limits),
        ("what-if", job, "--account", limits),
        ("run", job, "--account", limits, "--market", record),
        ("run", job, "--account", limits, "--market", record, "--apply",
         "--state-dir", tmp_path / "state"),
        ("backtest", job, "--account", limits, "--market", record),
    ):  # fmt: skip
        done = invoke(*command)
        assert (done.exit_code, said in done.stderr) == (2, True), (command, done.stderr)
    for text in ("", "tenants: []\n", "tenants: [{name: research}]\n"):
        written(tmp_path, "account.yaml", f"kind: account\n{text}")
        assert invoke("validate", job, limits).exit_code == 0


def test_a_job_without_a_tenant_is_refused_where_the_account_names_some(tmp_path: Path) -> None:
    job = written(tmp_path, "job.yaml", JOB.replace("tenant: research\n", ""))
    limits = written(tmp_path, "account.yaml", "tenants: [{name: red}, {name: blue}]\n")
    done = invoke("plan", job, "--account", limits)
    assert done.exit_code == 2
    error = failure(done)
    assert isinstance(error, SpecFileError)
    assert [(p.field, p.code) for p in error.problems] == [("tenant", "unknown_name")]
    assert "job.yaml:1:1: tenant: 'default'" in done.stderr
    assert "blue, red" in str(error.hint)
    written(tmp_path, "account.yaml", "tenants: [{name: default}]\n")
    assert invoke("plan", job, "--account", limits).exit_code == 0


def test_what_if_respects_the_account(tmp_path: Path) -> None:
    job = written(tmp_path, "job.yaml", JOB)
    limits = written(tmp_path, "account.yaml", "quotas: [{name: q, max_usd_per_hour: 0.01}]\n")
    arguments = ("what-if", job, "--policies", "cheapest", "--points", "0")
    assert invoke(*arguments).exit_code == 0
    assert invoke(*arguments, "--account", limits).exit_code == 3


def test_a_wrong_account_file_is_reported_with_its_place(tmp_path: Path) -> None:
    job = written(tmp_path, "job.yaml", JOB)
    limits = written(tmp_path, "account.yaml", "quotas:\n  - {name: q}\n")
    done = invoke("plan", job, "--account", limits)
    assert done.exit_code == 2
    assert "account.yaml:2:5: quotas[0]: limits nothing" in done.stderr


def test_data_in_a_region_keep_a_plan_near_them(tmp_path: Path) -> None:
    near = JOB + "data: {uri: s3://bucket/data, size_gib: 4000, region: aws/us-west-2}\n"
    result = planned(written(tmp_path, "job.yaml", near), "--top", "1")
    assert regions(result) == {"aws/us-west-2"}


def test_data_whose_way_has_no_price_leave_nothing(tmp_path: Path) -> None:
    lost = JOB + "data: {uri: az://bucket/data, size_gib: 10, region: azure/eastus}\n"
    done = invoke("plan", written(tmp_path, "job.yaml", lost))
    assert done.exit_code == 3
    assert "transfer_unknown" in done.stderr


def test_a_run_respects_the_account(tmp_path: Path) -> None:
    market = tmp_path / "m.parquet"
    done = invoke(
        "market", "generate", "--instance-type", "g4dn.xlarge", "--region", "us-east-1",
        "--profile", "calm", "--hours", "96", "--out", market,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    job = written(tmp_path, "job.yaml", JOB)
    limits = written(tmp_path, "account.yaml", "quotas: [{name: q, max_usd_per_hour: 0.01}]\n")
    preview = ("run", job, "--market", market, "--state-dir", tmp_path / "state")
    assert invoke(*preview).exit_code == 0
    refused = invoke(*preview, "--account", limits)
    assert refused.exit_code == 3
    assert "quota: q" in refused.stderr
    applied = invoke(*preview, "--account", limits, "--apply")
    assert applied.exit_code == 3
    assert "quota: q" in applied.stderr
