"""costopt backtest: every column of every form, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.catalog import load_catalog
from costopt.cli.main import cli
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.view import Desired, View
from costopt.energy.carbon import CarbonHistory
from costopt.energy.carbon_files import write_carbon
from costopt.market.history_file import write_history
from tests.support.errors import failure
from tests.support.installed_strategy import install_strategy
from tests.support.market_fixtures import T0, market, pool_history

HOUR = 3600
ON_DEMAND = Pool("aws", "us-west-2", "us-west-2a", "p3.2xlarge", CapacityType.ON_DEMAND)
SPOT = ON_DEMAND.with_capacity_type(CapacityType.SPOT)
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
    reported = json.loads(done.stdout)
    assert reported["schema"] == "costopt.backtest/1"
    return {row["strategy"]: row for row in reported["rows"]}


def test_the_policy_stands_beside_baselines_and_hindsight(folder: Path) -> None:
    reported = rows(folder, "--starts", "3")
    assert list(reported) == [
        "on_demand", "greedy_spot", "uniform_progress", "greedy", "hindsight optimum",
    ]  # fmt: skip
    for name, row in reported.items():
        assert row["runs"] == 3
        assert row["misses"] == 0
        ratio, mean_usd = row["hindsight_ratio"], row["mean_usd"]
        assert ratio is not None
        assert mean_usd is not None
        assert ratio >= 1, name
        assert ratio == pytest.approx(mean_usd / (reported["hindsight optimum"]["mean_usd"] or 0))
    assert reported["greedy"] == reported["greedy_spot"] | {"strategy": "greedy"}
    assert reported["on_demand"]["interruptions"] == 0
    # 360,000 samples at 30/s and a launch, on demand at 3 $/h to the end of the tick.
    assert reported["on_demand"]["finish_s"] == pytest.approx(360_000 / 30 + 120, abs=601)
    assert reported["on_demand"]["mean_usd"] == pytest.approx(
        3.0 * (360_000 / 30 + 120) / 3600, abs=0.5
    )


class Moody:
    def decide(self, view: View) -> Desired:
        raise RuntimeError("out of sorts")


def test_a_strategy_that_fails_is_named_and_the_shield_keeps_the_deadline(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_strategy(monkeypatch, folder, "moody", f"{__name__}:Moody")
    (folder / "greedy.yaml").write_text("name: greedy\nstrategy: moody\n")
    done = backtest(folder, "--starts", "2", "--jobs", "1", "--runs", f"{folder}/runs.csv")
    assert done.exit_code == 0
    assert "2 of 2" in done.stderr
    assert "greedy" in done.stderr
    with (folder / "runs.csv").open() as file:
        runs = [row for row in csv.DictReader(file) if row["policy"] == "greedy"]
    assert [row["strategy_failure"] != "" for row in runs] == [True, True]
    assert [row["on_time"] for row in runs] == ["True", "True"]


def test_a_pool_that_took_a_node_is_left_alone_as_long_as_asked_for(folder: Path) -> None:
    soon, late = rows(folder)["greedy"], rows(folder, "--cooldown", "3600")["greedy"]
    assert soon == rows(folder, "--cooldown", "300")["greedy"]
    assert late["finish_s"] != soon["finish_s"]


def test_what_the_optimum_would_do_is_unknown_but_its_cost(folder: Path) -> None:
    best = rows(folder)["hindsight optimum"]
    for unknown in ("kwh", "gco2e", "finish_s", "interruptions", "switches", "lost_s"):
        assert best[unknown] is None


def test_co2e_counts_by_the_recorded_hour_where_it_is_given(folder: Path) -> None:
    """The record's second hour is dirty; a run of three hours and a half draws most after it."""
    zone = load_catalog().region("aws", "us-west-2")
    assert zone is not None
    assert zone.electricity_maps_zone is not None
    hourly = (50.0, 5000.0, *(50.0 for _ in range(22)))
    record = CarbonHistory(
        T0, {zone.electricity_maps_zone: hourly}, CarbonSignal.AVERAGE, "made up"
    )
    write_carbon(record, folder / "carbon.parquet")
    by_hour = rows(folder, "--carbon", f"{folder}/carbon.parquet")["on_demand"]
    annual = rows(folder)["on_demand"]
    assert by_hour["kwh"] == annual["kwh"]
    kwh, grams = by_hour["kwh"], by_hour["gco2e"]
    assert kwh is not None
    assert grams is not None
    assert by_hour["hourly_carbon_share"] == pytest.approx(1)
    assert annual["hourly_carbon_share"] == 0
    assert annual["gco2e"] == pytest.approx(kwh * (zone.average_gco2e_per_kwh or 0))
    dirty_kwh = (grams - 50 * kwh) / 4950
    assert kwh / 3.6 < dirty_kwh < kwh / 3.2


def test_an_on_demand_baseline_where_none_is_offered_is_unknown(tmp_path: Path) -> None:
    spot = pool_history(SPOT, [(0, 1, 1.0)], 24 * HOUR)
    write_history(market(spot, tick_s=600.0), tmp_path / "market.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "greedy.yaml").write_text(POLICY)
    reported = rows(tmp_path, "--starts", "3")
    on_demand = reported.pop("on_demand")
    assert on_demand.pop("runs") == 3
    assert {value for name, value in on_demand.items() if name != "strategy"} == {None}
    assert all(row["mean_usd"] for row in reported.values())


def test_lost_work_is_reported_in_seconds_of_work(folder: Path) -> None:
    """Spot goes 80 min after a launch without a notice, some 17 min after the second save."""
    without = rows(folder, "--notice", "0")["greedy"]
    assert without["interruptions"] == 3
    assert without["lost_s"] == pytest.approx(3 * 17 * 60, rel=0.1)
    assert rows(folder, "--notice", "120")["greedy"]["lost_s"] == 0


def test_gangs_of_several_sizes_are_compared_with_their_optimum(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB.replace("max_nodes: 1", "max_nodes: 2"))
    reported = rows(folder)
    assert all(float(row["hindsight_ratio"] or 0) >= 1 for row in reported.values())


def test_a_job_without_an_optimum_says_so(folder: Path) -> None:
    """Capacity that never comes finishes nothing."""
    never = market(pool_history(SPOT, [(0, 0, 1.0)], 24 * HOUR), tick_s=600.0)
    write_history(never, folder / "market.parquet")
    reported = rows(folder)
    assert "hindsight optimum" not in reported
    assert reported["greedy"]["hindsight_ratio"] is None
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


def test_the_html_is_one_page_and_nothing_else(folder: Path) -> None:
    pytest.importorskip("jinja2")
    done = backtest(folder, "-o", "html")
    assert done.exit_code == 0
    assert done.stderr == ""
    page = done.stdout
    assert page.lower().startswith("<!doctype html>")
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
        (("--runs", "/nowhere/x.csv"), 2, "there is no folder /nowhere"),
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
    assert failure(done).code == "market_too_short"
    assert recorded().ends_at - T0 == timedelta(hours=24)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[V100]", "[T4]", "can run job 'train': GPU V100-SXM2-16GB not among those"),
        ("8h", "3h", "the fastest takes 3 h 21 min, its deadline leaves 3 h"),
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


def test_every_market_deadline_and_start_up_time_is_tried(folder: Path) -> None:
    other = market(*recorded().pools.values(), tick_s=600.0, name="other")
    write_history(other, folder / "other.parquet")
    reported = backtest(
        folder, "--market", f"{folder}/other.parquet", "--starts", "2", "--deadlines", "6h,8h",
        "--startups", "1m,10m", "--by", "deadline", "--bounds", "-o", "json",
        "--runs", f"{folder}/runs.csv", "--jobs", "1",
    )  # fmt: skip
    assert reported.exit_code == 0, reported.stderr
    table = json.loads(reported.stdout)
    assert len(table["markets"]) == 2
    assert table["deadlines_h"] == [6, 8]
    assert table["windows"] == 2 * 2 * 2 * 2
    assert [row["group"] for row in table["rows"]] == ["6 h"] * 7 + ["8 h"] * 7
    assert {row["runs"] for row in table["rows"]} == {8}
    by_name = {(row["group"], row["strategy"]): row for row in table["rows"]}
    for group in ("6 h", "8 h"):
        for name in ("known lifetimes", "lifetime oracle"):
            oracle = by_name[group, name]
            assert oracle["misses"] == 0
            low, high = oracle["hindsight_interval"]
            assert 1 <= low <= oracle["hindsight_ratio"] <= high
    with (folder / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert len(runs) == 16 * 7
    assert {run["startup_s"] for run in runs} == {"60.0", "600.0"}
    assert {run["deadline_h"] for run in runs} == {"6.0", "8.0"}
    best = [float(run["usd"]) for run in runs if run["policy"] == "hindsight optimum"]
    assert len(best) == 16


def test_processes_seed_and_results_file_leave_the_figures_as_they_are(folder: Path) -> None:
    alone = backtest(folder, "--starts", "4", "-o", "json", "--jobs", "1")
    results = ("--results", f"{folder}/scores.jsonl")
    first = backtest(folder, "--starts", "4", "-o", "json", "--jobs", "2", *results)
    again = backtest(folder, "--starts", "4", "-o", "json", "--jobs", "1", *results)
    assert alone.stdout == first.stdout == again.stdout
    assert "scores.jsonl" not in alone.stderr + first.stderr
    assert "scores.jsonl: 20 of 20" in " ".join(again.stderr.split())
    refused = backtest(folder, "--starts", "4", "--notice", "0", "-o", "json", *results)
    assert refused.exit_code == 1
    assert "--notice has changed" in " ".join(refused.stderr.split())
    other = backtest(folder, "--starts", "4", "--seed", "1", "-o", "json", *results)
    assert "scores.jsonl: 20 of 20" in " ".join(other.stderr.split())
    assert other.exit_code == 0


def test_a_results_file_that_was_cut_off_is_gone_on_with(folder: Path) -> None:
    results = folder / "scores.jsonl"
    whole = backtest(folder, "--starts", "2", "-o", "json", "--results", str(results))
    results.write_bytes(results.read_bytes()[:-30])
    again = backtest(folder, "--starts", "2", "-o", "json", "--results", str(results))
    assert again.stdout == whole.stdout
    assert re.search(r"\b1\s+damaged\b", again.stderr)
    assert "scores.jsonl: 9 of 10" in again.stderr


def test_gaps_of_the_record_are_reported_and_kept_clear_of(folder: Path) -> None:
    gap = [(0, 1, 1.0), (10 * HOUR, None, None), (11 * HOUR, 1, 1.0)]
    record = market(
        pool_history(SPOT, gap, 24 * HOUR), pool_history(ON_DEMAND, [(0, 100, 3.0)], 24 * HOUR),
        tick_s=600.0,
    )  # fmt: skip
    write_history(record, folder / "market.parquet")
    done = backtest(folder, "--starts", "3", "-o", "json", "--runs", f"{folder}/runs.csv")
    (covered,) = json.loads(done.stdout)["coverage"]
    assert covered["gap_h"] == 1
    assert covered["usable_share"] == pytest.approx((2 + 5) / 16)
    shown = backtest(folder, "--starts", "3").stdout
    assert re.search(r"\b24 h .*\b1\.0 h .*\b8 h .*\b43\.8 %", shown)
    (folder / "job.yaml").write_text(JOB.replace("8h", "14h"))
    refused = backtest(folder, "--starts", "3")
    assert refused.exit_code == 1
    assert failure(refused).code == "gaps"
    assert "--over-gaps" in refused.stderr
    assert backtest(folder, "--starts", "3", "--over-gaps").exit_code == 0


def test_the_report_shows_the_optimum_and_the_coverage(folder: Path) -> None:
    pytest.importorskip("jinja2")
    done = backtest(folder, "--starts", "2", "-o", "html")
    assert done.exit_code == 0, done.stderr
    page = done.stdout
    for reported in (
        "Progress over time",
        "Where it ran",
        "24 h recorded, no gap",
        "hindsight optimum",
    ):
        assert reported in page


def test_ray_without_its_extra_is_refused_before_it_replays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = backtest(folder, "--ray", "local")
    assert done.exit_code == 1
    assert "costopt-spot[ray]" in done.stderr


def test_the_report_says_why_a_strategy_that_weighs_did_what_it_did(folder: Path) -> None:
    pytest.importorskip("jinja2")
    (folder / "greedy.yaml").write_text(POLICY.replace("greedy_spot", "adaptive"))
    done = backtest(folder, "-o", "html")
    assert done.exit_code == 0, done.stderr
    page = done.stdout
    assert re.search(r"<h\d[^>]*>[^<]*\bgreedy\b", page)
    assert "$ to the end" in page
    assert not re.search(r"<h\d[^>]*>[^<]*\bon_demand\b", page)


def test_replays_respect_the_account(folder: Path) -> None:
    """No spot may be had: every strategy runs on demand."""
    (folder / "account.yaml").write_text(
        "quotas: [{name: no-spot, capacity_type: spot, max_usd_per_hour: 0.5}]\n"
    )
    reported = rows(folder, "--account", f"{folder}/account.yaml")
    assert reported["greedy"]["mean_usd"] == pytest.approx(
        reported["on_demand"]["mean_usd"], rel=0.1
    )
    assert reported["greedy"]["interruptions"] == 0
    assert reported["greedy"]["misses"] == 0
    assert (rows(folder)["greedy"]["interruptions"] or 0) > 0


def test_what_was_recorded_before_a_start_may_be_learned_from(folder: Path) -> None:
    (folder / "ours.yaml").write_text("name: ours\nstrategy: adaptive\n")
    ours = ("--policies", f"{folder}/ours.yaml", "--starts", "3", "-o", "json")
    reported = [json.loads(backtest(folder, *ours, "--history", past).stdout) for past in
            ("none", "all", "1h")]  # fmt: skip
    assert [each["history_h"] for each in reported] == [0.0, "all", 1.0]
    paid = [{row["strategy"]: row["mean_usd"] for row in each["rows"]} for each in reported]
    assert paid[0]["greedy_spot"] == paid[1]["greedy_spot"]
    shown = backtest(folder, "--history", "2d").stdout
    assert "2 d" in " ".join(shown.split())
    assert backtest(folder, "--history", "all", "-o", "html").exit_code == 0
    assert backtest(folder, "--history", "often").exit_code == 2


def test_a_shipped_policy_that_is_a_baseline_is_one_row(folder: Path) -> None:
    reported = rows(folder, "--policies", "on-demand")
    assert list(reported) == ["greedy_spot", "uniform_progress", "on-demand", "hindsight optimum"]


def test_more_windows_than_ticks_are_said_and_not_run(folder: Path) -> None:
    many = ("--starts", "100000", "--deadlines", "22h", "--runs", f"{folder}/runs.csv")
    done = backtest(folder, *many, "--jobs", "1", "-o", "json")
    assert done.exit_code == 0, done.stderr
    windows = 2 * 6 + 1
    assert json.loads(done.stdout)["windows"] == windows
    assert f"{windows} windows of " in done.stderr
    with (folder / "runs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == windows * 5


def test_regret(folder: Path) -> None:
    """What a policy lost sums to its dollars above the optimum of the same windows."""
    more = ("--starts", "2", "--output", "json")
    plain = json.loads(backtest(folder, *more).stdout)["rows"]
    found = json.loads(backtest(folder, *more, "--regret").stdout)
    assert found["schema"] == "costopt.backtest.regret/1"
    best = next(row for row in plain if row["strategy"] == "hindsight optimum")
    assert [row["strategy"] for row in found["rows"]] == [row["strategy"] for row in plain[:-1]]
    for row, usd in zip(found["rows"], (row["mean_usd"] for row in plain), strict=False):
        kinds = [value for key, value in row.items() if key.endswith("_usd")]
        assert row["mean_usd"] == usd
        assert row["regret_usd"] == pytest.approx(usd - best["mean_usd"], abs=2e-6)
        assert sum(kinds) == pytest.approx(row["mean_usd"] + 2 * row["regret_usd"])
        assert row["regret_runs"] == 2
