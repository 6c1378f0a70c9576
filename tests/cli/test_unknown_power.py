"""plan, what-if, run, report and backtest on Trainium, whose power no vendor publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import invoke

JOB = """\
name: trn
work: {amount: 600, unit: steps}
deadline: 20h
resources: {gpu_models: [Trainium1], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: Trainium1, gpus: 1, units_per_s: 0.02}]}
checkpoint: {uri: saves, size_gib: 0.001, save: 10s, restore: 1m, interval: 30m}
startup: 5m
run: [python, -c, "import time; time.sleep(0.2)"]
"""
USD = "name: usd\nobjective: {usd: 1}\nstrategy: greedy_spot\n"


def figures_of(*arguments: str | Path) -> dict[str, Any]:
    done = invoke(*arguments, "-o", "json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("market") / "m.parquet"
    done = invoke(
        "market", "generate", "--instance-type", "trn1.2xlarge", "--region", "us-east-1",
        "--profile", "calm", "--hours", "96", "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    return out


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "usd.yaml").write_text(USD)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_plan_shows_unknown_energy(job: Path, market: Path) -> None:
    arguments = ("plan", job, "--market", market, "--policy", job.with_name("usd.yaml"))
    result = figures_of(*arguments)
    for figures in (result["forecast"], *result["rows"]):
        assert figures["usd_p50"] > 0
        energy = ("kwh", "kwh_low", "kwh_high", "energy_basis", "gco2e")
        assert [figures[name] for name in energy] == [None] * 5
    assert "energy unknown" in " ".join(invoke(*arguments).stdout.split())
    assert invoke(*arguments, "-o", "html").exit_code == 0


def test_plan_by_energy_says_why_such_a_pool_is_out(job: Path, market: Path) -> None:
    done = invoke("plan", job, "--market", market, "--policy", "greenest")
    assert done.exit_code == 3
    assert "power_unknown" in done.stderr
    assert "kWh" in done.stderr or "energy" in done.stderr


def test_what_if_reports_a_frontier_of_unknown_energy(job: Path, market: Path) -> None:
    asked = ("what-if", job, "--market", market, "--policies", job.with_name("usd.yaml"))
    result = figures_of(*asked)
    assert [row["kwh"] for row in result["rows"]] == [None]
    assert result["frontier"]
    assert {point["kwh"] for point in result["frontier"]} == {None}
    text = invoke(*asked, "-o", "html").stdout
    assert "unknown energy" in text
    assert "Plans of the frontier" in text


def test_a_run_s_ledger_and_report_say_that_energy_is_unknown(job: Path, market: Path) -> None:
    state = job.with_name("state")
    done = invoke(
        "run", job, "--policy", job.with_name("usd.yaml"), "--market", market, "--speed", "3000",
        "--state-dir", state, "--apply",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    (row,) = figures_of("status", "--state-dir", state)["rows"]
    assert row["usd_micros"] > 0
    energy = ("wh", "idle_wh", "busy_wh", "gco2e", "carbon_basis", "baseline_wh")
    assert [row[name] for name in energy] == [None] * 6
    assert row["energy_basis"] == "unknown"
    page = invoke("report", "trn", "--state-dir", state, "-o", "html").stdout
    assert "the power of a node is unknown" in page


def test_a_backtest_leaves_energy_unknown(job: Path, market: Path) -> None:
    asked = (
        "backtest", job, "--market", market, "--policies", job.with_name("usd.yaml"),
        "--starts", "2",
    )  # fmt: skip
    result = figures_of(*asked)
    rows = {row["strategy"]: row for row in result["rows"]}
    assert {"usd", "on_demand", "greedy_spot"} <= rows.keys()
    for name in ("usd", "on_demand", "greedy_spot"):
        assert rows[name]["mean_usd"] > 0
        assert rows[name]["kwh"] is rows[name]["gco2e"] is None
    assert "</html>" in invoke(*asked, "-o", "html").stdout
