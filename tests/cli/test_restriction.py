"""--provider, --region, --gpus and --spot: one meaning in plan, what-if, backtest and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import costopt as co
from costopt.market.history_file import read_history
from tests.support.command_line import invoke
from tests.support.errors import failure

JOB = """\
name: tune
work: {amount: 36000, unit: steps}
deadline: 24h
resources: {gpu_models: [T4, L4], max_gpus: 4}
throughput: {flops_per_unit: 1e13, mfu: 0.4}
checkpoint: {uri: s3://bucket/tune, size_gib: 1, save: 10s, restore: 10s}
run: [python, train.py]
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def plan(*arguments: str | Path) -> dict[str, Any]:
    done = invoke("plan", *arguments, "-o", "json", "--top", "0")
    assert done.exit_code == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def places(result: dict[str, Any], *parts: int) -> set[str]:
    """Return these parts of the pools of all candidates."""
    return {"/".join(row["pool"].split("/")[part] for part in parts) for row in result["rows"]}


def test_list_prices_are_those_of_the_providers_and_regions(job: Path) -> None:
    assert places(plan(job), 0) == {"aws", "gcp"}
    assert places(plan(job, "--provider", "gcp"), 0) == {"gcp"}
    several = plan(job, "--provider", "aws", "--region", "us-east-1,us-west-2")
    assert {place.rstrip("*") for place in places(several, 0, 1)} == {
        "aws/us-east-1", "aws/us-west-2"
    }  # fmt: skip


@pytest.mark.parametrize(("flag", "kind"), [("--spot", "spot"), ("--on-demand", "on_demand")])
def test_one_capacity_type(job: Path, flag: str, kind: str) -> None:
    assert places(plan(job, flag), 4) == {kind}
    done = invoke("what-if", job, "--policies", "cheapest", "--points", "0", flag, "-o", "json")
    assert [row["capacity"] for row in json.loads(done.stdout)["rows"]] == [kind]


def test_gpus_stand_for_those_of_the_file(job: Path) -> None:
    result = plan(job, "--gpus", "8xH100", "--provider", "aws")
    gpus = {"p5.48xlarge": 8, "p5.4xlarge": 1}
    assert {gpus[row["pool"].split("/")[3]] * row["nodes"] for row in result["rows"]} == {8}


def test_in_python_as_on_the_command_line(job: Path) -> None:
    result = co.plan(job, provider="aws", region=["us-east-1"], gpus="2xT4", capacity="on_demand")
    pools = {each.pool for each in result.candidates}
    assert {(p.provider, p.region, p.capacity_type.value) for p in pools} == {
        ("aws", "us-east-1", "on_demand")
    }
    assert {each.nodes for each in result.candidates} <= {1, 2}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--provider", "awz"), "did you mean 'aws'?"),
        (("--region", "us-east-11"), "did you mean 'us-east-1'"),
        (("--provider", "gcp", "--region", "us-east-1"), "did you mean 'us-east1'"),
        (("--gpus", "8xH10"), "did you mean 'H100'"),
        (("--gpus", "8"), "8xH100"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "what-if"])
def test_an_unknown_name_is_met_with_the_nearest(
    job: Path, command: str, more: tuple[str, ...], said: str
) -> None:
    done = invoke(command, job, *more)
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize("command", ["plan", "run", "backtest"])
def test_names_are_those_of_a_market(job: Path, command: str) -> None:
    done = invoke(command, job, "--market", "sample", "--region", "us-west-99")
    assert done.exit_code == 2
    assert "market 'sample'" in done.stderr


def test_a_policy_stays_the_limit(job: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("kind: policy\nname: east\nlimits: {regions: [us-east-1]}\n")
    done = invoke("plan", job, "-p", policy, "--region", "us-west-2")
    assert done.exit_code == 2
    assert "us-east-1" in done.stderr
    assert failure(done).code == "not_allowed"
    assert invoke("plan", job, "-p", "on-demand", "--spot").exit_code == 2


def test_the_accounts_clouds_and_regions_bind_list_prices(job: Path, tmp_path: Path) -> None:
    account = tmp_path / "account.yaml"
    account.write_text("providers: {aws: {regions: [us-east-1]}}\n")
    assert {p.rstrip("*") for p in places(plan(job, "--account", account), 0, 1)} == {
        "aws/us-east-1"
    }
    for more in (("--provider", "gcp"), ("--region", "us-west-2")):
        done = invoke("plan", job, "--account", account, *more)
        assert done.exit_code == 2
        assert "the account file does not name" in done.stderr
    account.write_text("providers: {nimbus: {}}\n")
    done = invoke("plan", job, "--account", account)
    assert done.exit_code == 1
    assert "--market live" in done.stderr


def test_a_run_and_its_preview_use_the_same_pools(job: Path) -> None:
    regions = sorted({pool.region for pool in read_history(Path("sample")).pools})
    asked = ("--region", regions[0], "--on-demand", "--gpus", "8xH100", "-o", "json")
    done = invoke("run", job, "--market", "sample", *asked)
    assert done.exit_code == 0, done.stderr
    assert places(json.loads(done.stdout), 1, 4) == {f"{regions[0]}/on_demand"}


def test_a_backtest_and_its_baselines_are_restricted(job: Path) -> None:
    market = co.read_market("sample")
    region = min(pool.region for pool in market.history.pools)
    result = co.backtest(co.load_job(job, now=market.starts_at), "cheapest", market, region=region)
    assert {policy.limits.regions for policy in result.grid.policies} == {(region,)}
