"""Where `costopt run` and `costopt plan` find a cloud, and what they say where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli

JOB = """\
name: char-gpt
work: {amount: 4e5, unit: steps}
deadline: 12h
resources: {gpu_models: [T4], max_nodes: 4}
throughput: {flops_per_unit: 1e13, mfu: 0.4}
checkpoint: {uri: checkpoints, save: 10s}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def account(tmp_path: Path) -> Path:
    path = tmp_path / "account.yaml"
    path.write_text("owner: me\nproviders: {aws: {regions: [us-east-1]}, none-such: {}}\n")
    return path


def refusal(*arguments: str | Path) -> tuple[int, str]:
    done: Result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return done.exit_code, done.stderr


def test_a_run_needs_a_cloud(job: Path) -> None:
    code, said = refusal("run", job)
    assert code == 2
    assert "--market sample" in said
    assert "--account FILE" in said


def test_a_daemon_takes_one_cloud(account: Path) -> None:
    code, said = refusal(
        "daemon", "--account", account, "--provider", "aws", "--market", "m.parquet"
    )
    assert code == 2
    assert "--provider" in said
    assert "--market" in said


def test_real_time_does_not_run_faster(job: Path, account: Path) -> None:
    code, said = refusal("run", job, "--account", account, "--speed", "60")
    assert code == 2
    assert "--speed" in said


@pytest.mark.parametrize("command", ["run", "plan", "what-if"])
def test_a_provider_is_one_that_the_account_names(job: Path, account: Path, command: str) -> None:
    code, said = refusal(command, job, "--account", account, "--provider", "azure")
    assert code == 2
    assert "'azure'" in said
    assert "aws, none-such" in said


def test_an_adapter_that_is_not_installed_is_named(job: Path, account: Path) -> None:
    code, said = refusal("plan", job, "--account", account, "--market", "live",
                         "--provider", "none-such")  # fmt: skip
    assert code == 1
    assert "'none-such'" in said
    assert "aws, gcp, kubernetes, sim, slurm" in said


def test_a_wrong_option_of_a_provider_is_named(job: Path, account: Path) -> None:
    account.write_text("owner: me\nproviders: {aws: {regions: [us-east-1a]}}\n")
    code, said = refusal("plan", job, "--account", account, "--market", "live")
    assert code == 2
    assert f"{account}:2:29: providers.aws.regions[0]: " in said
