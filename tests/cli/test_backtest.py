"""costopt backtest: every column of every form, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.history_file import write_history
from tests.market_fixtures import T0, market, pool_history

HOUR = 3600
ON_DEMAND = Pool("aws", "us-west-2", "us-west-2a", "p3.2xlarge", CapacityType.ON_DEMAND)
SPOT = ON_DEMAND.on(CapacityType.SPOT)
JOB = """\
name: train
work: {amount: 360000, unit: samples}
deadline: 8h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: V100, units_per_s: 30}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 60s, restore: 60s, interval: 30m}
startup: 60s
"""
POLICY = "name: greedy\nstrategy: greedy_spot\n"


def recorded() -> MarketHistory:
    """Spot goes after each 80 min, for 10 min; on demand is always there."""
    up = [(start + up_s, nodes, 1.0) for start in range(0, 24 * HOUR, 5400)
          for up_s, nodes in ((0, 1), (4800, 0))]  # fmt: skip
    spot = pool_history(SPOT, up, 24 * HOUR)
    return market(spot, pool_history(ON_DEMAND, [(0, 100, 3.0)], 24 * HOUR), tick_s=600.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_history(recorded(), tmp_path / "market.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "greedy.yaml").write_text(POLICY)
    return tmp_path


def backtest(folder: Path, *more: str) -> Result:
    fixed = ("--market", f"{folder}/market.parquet", "--policies", f"{folder}/greedy.yaml")
    return CliRunner().invoke(cli, ("backtest", f"{folder}/job.yaml", *fixed, *more))


def rows(folder: Path, *more: str) -> dict[str, dict[str, float | None]]:
    done = backtest(folder, *more, "-o", "json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "costopt.backtest/1"
    return {row["strategy"]: row for row in told["rows"]}


def test_the_policy_stands_beside_baselines_and_hindsight(folder: Path) -> None:
    told = rows(folder, "--starts", "3")
    assert list(told) == [
        "on_demand", "greedy_spot", "uniform_progress", "greedy", "hindsight optimum",
    ]  # fmt: skip
    for name, row in told.items():
        assert row["runs"] == 3
        assert row["misses"] == 0
        ratio, mean_usd = row["hindsight_ratio"], row["mean_usd"]
        assert ratio is not None
        assert mean_usd is not None
        assert ratio >= 1, name
        assert ratio == pytest.approx(mean_usd / (told["hindsight optimum"]["mean_usd"] or 0))
    assert told["greedy"] == told["greedy_spot"] | {"strategy": "greedy"}
    assert told["on_demand"]["interruptions"] == 0
    # 360,000 samples at 30/s and a launch, on demand at 3 $/h to the end of the tick.
    assert told["on_demand"]["finish_s"] == pytest.approx(360_000 / 30 + 120, abs=601)
    assert told["on_demand"]["mean_usd"] == pytest.approx(
        3.0 * (360_000 / 30 + 120) / 3600, abs=0.5
    )


def test_what_the_optimum_would_do_is_unknown_but_its_cost(folder: Path) -> None:
    best = rows(folder)["hindsight optimum"]
    for unknown in ("kwh", "gco2e", "finish_s", "interruptions", "switches", "lost_s"):
        assert best[unknown] is None


def test_lost_work_is_told_in_seconds_of_work(folder: Path) -> None:
    """Spot goes 80 min after a launch without a notice, some 17 min after the second save."""
    without = rows(folder, "--notice", "0")["greedy"]
    assert without["interruptions"] == 3
    assert without["lost_s"] == pytest.approx(3 * 17 * 60, rel=0.1)
    assert rows(folder, "--notice", "120")["greedy"]["lost_s"] == 0


def test_a_job_without_an_optimum_says_so(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB.replace("max_nodes: 1", "max_nodes: 2"))
    told = rows(folder)
    assert "hindsight optimum" not in told
    assert told["greedy"]["hindsight_ratio"] is None
    shown = backtest(folder).stdout
    assert "No hindsight optimum" in shown
    assert "–" in shown


@pytest.mark.parametrize("output", ["table", "csv", "md", "html"])
def test_every_form_holds_every_policy(folder: Path, output: str) -> None:
    done = backtest(folder, "-o", output)
    assert done.exit_code == 0
    for name in ("on_demand", "greedy_spot", "uniform_progress", "greedy", "hindsight optimum"):
        assert name in done.stdout
    if output == "csv":
        lines = list(csv.DictReader(io.StringIO(done.stdout)))
        assert lines[-1]["lost_s"] == ""
        assert float(lines[0]["mean_usd"]) > 0


def test_the_report_is_one_page_and_stdout_stays_clean(folder: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    done = backtest(folder, "-o", "json", "--report", f"{folder}/x.html")
    assert done.exit_code == 0
    json.loads(done.stdout)
    assert done.stderr == f"report: {folder}/x.html\n"
    page = (folder / "x.html").read_text(encoding="utf-8")
    assert "greedy_spot" in page
    assert "src=" not in page


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--policies", ","), 2, "nothing to try"),
        (("--policies", "on-demand,on-demand"), 2, "2 policies, baselines included, are named"),
        (("--policies", "cheapst"), 2, "did you mean 'cheapest'"),
        (("--market", "missing.parquet"), 1, "does not exist"),
        (("--starts", "0"), 2, "Invalid value for '--starts'"),
        (("--notice", "-1"), 2, "Invalid value for '--notice'"),
        (("--report", "/nowhere/x.html"), 2, "there is no folder /nowhere"),
    ],
)
def test_backtest_refuses_before_it_replays(
    folder: Path, more: tuple[str, ...], code: int, said: str
) -> None:
    done = backtest(folder, *more)
    assert done.exit_code == code
    assert said in done.stderr
    assert done.stderr.count("error:") == 1
    assert done.stdout == ""


def test_a_record_that_is_too_short_is_refused(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB.replace("8h", "25h"))
    done = backtest(folder)
    assert done.exit_code == 1
    assert "holds 24.0 h and job 'train' takes up to 25.0 h" in done.stderr
    assert recorded().ends_at - T0 == timedelta(hours=24)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[V100]", "[T4]", "can run job 'train': GPU V100-SXM2-16GB not among those"),
        ("gpu: V100", "gpu: T4", "can run job 'train': the job says nothing about its speed"),
        ("8h", "3h", "the fastest takes 3h 21m, its deadline leaves 3h 00m"),
    ],
)
def test_a_job_that_no_pool_can_do_is_refused_before_it_replays(
    folder: Path, old: str, new: str, said: str
) -> None:
    assert old in JOB
    (folder / "job.yaml").write_text(JOB.replace(old, new))
    done = backtest(folder)
    assert done.exit_code == 3
    assert said in done.stderr
    assert done.stdout == ""
