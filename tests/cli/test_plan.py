"""plan and what-if, over the built-in catalogue and over a record."""

from __future__ import annotations

import json
import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from costopt.domain.errors import InfeasibleError, StaleDataError
from costopt.domain.market import CapacityType
from costopt.market.history_file import read_history, write_history
from costopt.planning.quotes import recorded_quotes
from costopt.planning.request import plan_job, raise_if_infeasible
from costopt.spec import load_job, load_policy
from tests.support.command_line import invoke
from tests.support.errors import failure
from tests.support.market_fixtures import SPOT, pool_history
from tests.support.market_fixtures import market as market_of

JOB = """\
name: char-gpt
work: {amount: 4e5, unit: steps}
deadline: DEADLINE
resources: {gpu_models: [T4, H100], max_nodes: 4}
throughput:
  points:
    - {gpu: T4, units_per_s: 2.6}
    - {gpu: V100, units_per_s: 5}
    - {gpu: H100, units_per_s: 39.6}
checkpoint: {uri: checkpoints, save: 10s}
"""


def figures_of(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def job_file(folder: Path, deadline: str = "72h") -> Path:
    path = folder / "job.yaml"
    path.write_text(JOB.replace("DEADLINE", deadline))
    return path


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("market") / "m.parquet"
    done = invoke(
        "market", "generate", "--instance-type", "g4dn.xlarge", "--region", "us-east-1",
        "--profile", "calm", "--hours", "48", "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    return out


def test_plan_over_the_catalogue_says_that_its_prices_are_not_for_launching(
    tmp_path: Path,
) -> None:
    done = invoke("plan", job_file(tmp_path), "-o", "json")
    result = figures_of(done)
    assert result["schema"] == "costopt.plan/1"
    assert result["status"] == "optimal"
    assert done.stderr.startswith("note: ")
    assert re.search(r"\d{4}-\d{2}-\d{2}", done.stderr), "the date of the list prices"
    chosen = [row for row in result["rows"] if row["chosen"]]
    assert chosen
    assert len(result["rows"]) == len(chosen) + 10
    assert all(row["reason"] and row["code"] for row in result["rows"] if not row["chosen"])
    forecast = result["forecast"]
    assert 0 < forecast["usd_p50"] <= forecast["usd_p95"]
    assert forecast["kwh_low"] <= forecast["kwh"] <= forecast["kwh_high"]
    assert forecast["finish_p95_at"] <= result["deadline_at"]


def test_plan_over_a_record_uses_its_clock_and_pools(tmp_path: Path, market: Path) -> None:
    result = figures_of(invoke("plan", job_file(tmp_path), "--market", market, "-o", "json"))
    assert result["made_at"] == "2024-01-01T00:00:00Z"
    assert result["deadline_at"] == "2024-01-04T00:00:00Z"
    assert all(each["pool"].startswith("aws/us-east-1/") for each in result["allocations"])
    assert {row["price_age_s"] for row in result["rows"]} == {0}


def test_plan_at_a_later_time(tmp_path: Path, market: Path) -> None:
    arguments = ("--market", market, "--at", "2024-01-01T12:00:00Z", "-o", "json")
    assert (
        figures_of(invoke("plan", job_file(tmp_path), *arguments))["made_at"]
        == "2024-01-01T12:00:00Z"
    )


def test_the_table_ticks_what_is_chosen_and_explains_the_rest(tmp_path: Path, market: Path) -> None:
    done = invoke("plan", job_file(tmp_path), "--market", market, "--explain", "-p", "on-demand")
    assert done.exit_code == 0
    assert "✔" in done.stdout
    assert "P(on time)" in done.stdout
    assert "Done " in done.stdout
    assert "spot" in done.stdout


def test_explain_shows_what_remains_of_each_limit_and_what_more_of_it_saves(
    tmp_path: Path,
) -> None:
    path = job_file(tmp_path)
    path.write_text(path.read_text() + "budget: {usd: 5000}\n")
    shown = invoke("plan", path, "--explain").stdout
    assert re.search(r"deadline of char-gpt +[\d.]+ +h +nothing", shown)
    assert re.search(r"max_usd of char-gpt +[\d,]+ +\$ +nothing", shown)
    constraints = figures_of(invoke("plan", path, "-o", "json"))["constraints"]
    assert {each["name"]: (each["unit"], each["shadow_price"]) for each in constraints} == {
        "deadline of char-gpt (h)": ("h", 0.0),
        "max_usd of char-gpt ($)": ("$", 0.0),
    }


def test_a_plan_says_whose_figures_are_those_of_the_fallback(tmp_path: Path) -> None:
    path = job_file(tmp_path, "14m")
    done = invoke("plan", path, "--top", "0", "-o", "json")
    rows = json.loads(done.stdout)["rows"]
    likely = sum(row["falls_back"] >= 0.5 for row in rows)
    assert likely
    note = f"{likely} candidates would probably miss the deadline alone"
    assert note in invoke("plan", path).stdout


def test_a_speed_that_was_not_measured_is_offered_to_be(tmp_path: Path) -> None:
    path = job_file(tmp_path)
    assert "costopt calibrate" not in invoke("plan", path).stdout
    path.write_text(re.sub(r"throughput:(\n  .*)+", "throughput: {flops_per_unit: 1e12, mfu: 0.4}",
                           path.read_text()))  # fmt: skip
    assert "costopt calibrate" in invoke("plan", path).stdout


def test_an_impossible_deadline_exits_with_3_and_the_reason(tmp_path: Path) -> None:
    done = invoke("plan", job_file(tmp_path, "13m"), "-o", "json")
    assert done.exit_code == 3
    assert failure(done).code == "infeasible"
    assert "deadline" in done.stderr
    assert json.loads(done.stdout)["status"] == "infeasible"


def test_a_run_is_refused_before_it_begins_where_it_cannot_end_in_time(
    tmp_path: Path, market: Path
) -> None:
    history, policy = read_history(market), load_policy("cheapest")
    in_time = load_job(job_file(tmp_path), history.starts_at)
    seen = recorded_quotes(history, history.starts_at)
    raise_if_infeasible(plan_job(in_time, policy, seen), in_time)
    late = load_job(job_file(tmp_path, "20m"), history.starts_at)
    with pytest.raises(InfeasibleError, match="char-gpt"):
        raise_if_infeasible(plan_job(late, policy, seen), late)


def test_only_stale_prices_exit_with_5(tmp_path: Path, market: Path) -> None:
    after_the_record = ("--market", market, "--at", "2024-02-01T00:00:00Z")
    done = invoke("plan", job_file(tmp_path), *after_the_record)
    assert done.exit_code == 5
    assert "too old" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("missing.yaml",), 2, "cannot be read"),
        (("{job}", "--policy", "cheapst"), 2, "did you mean 'cheapest'"),
        (("{job}", "--market", "missing.parquet"), 1, "does not exist"),
        (("{job}", "--at", "2024-01-01T00:00:00Z"), 2, "--at needs --market"),
        (("{job}", "--market", "{market}", "--at", "2020-01-01T00:00:00Z"), 1, "begins at"),
        (("{job}", "--market", "{market}", "--at", "noon"), 2, "expected a time"),
    ],
)
def test_plan_tells_what_is_wrong(
    tmp_path: Path, market: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    job = str(job_file(tmp_path))
    done = invoke(
        "plan", *(a.replace("{job}", job).replace("{market}", str(market)) for a in arguments)
    )
    assert done.exit_code == code
    assert said in done.stderr


def test_what_if_plans_each_scenario_and_marks_the_frontier(tmp_path: Path, market: Path) -> None:
    done = invoke(
        "what-if", job_file(tmp_path), "--market", market, "--policies", "cheapest,on-demand",
        "--deadlines", "20m,24h,72h", "--capacity", "spot,both", "-o", "json",
    )  # fmt: skip
    result = figures_of(done)
    assert result["schema"] == "costopt.what-if/1"
    rows = result["rows"]
    assert len(rows) == 2 * 3 * 2
    for row in rows:
        if row["policy"] == "on-demand" and row["capacity"] == "spot":
            assert "spot" in row["why_not"]
            assert row["status"] is None
        elif row["deadline_s"] == 1200:
            assert row["status"] == "infeasible"
            assert row["why_not"]
        elif row["capacity"] == "spot" and row["status"] == "infeasible":
            assert row["why_not"].startswith("risk: ")
        elif row["capacity"] == "both" or row["deadline_s"] == 72 * 3600:
            assert row["usd_mean"] > 0
            assert row["pools"]
    cheapest = min((row for row in rows if row["usd_mean"]), key=lambda row: row["usd_mean"])
    assert cheapest["unbeaten"]
    figures = [(p["usd"], p["kwh"], p["finish_p50_at"]) for p in result["frontier"]]
    assert figures
    assert figures == sorted(figures)
    for one, other in permutations(figures, 2):
        assert not all(a <= b for a, b in zip(one, other, strict=True))
    for star in (row for row in rows if row["unbeaten"]):
        for other in (row for row in rows if row["usd_mean"]):
            much_better = other["usd_mean"] < 0.99 * star["usd_mean"]
            assert not (much_better and other["kwh"] < 0.99 * star["kwh"])


def test_what_if_says_what_a_tolerance_buys(tmp_path: Path) -> None:
    result = figures_of(invoke(
        "what-if", job_file(tmp_path), "--policies", "cheapest,on-demand", "--points", "0",
        "--tolerance", "0,0.1,20%", "--output", "json",
    ))  # fmt: skip
    rows = result["rows"]
    assert [row["tolerance"] for row in rows] == 2 * [0.0, 0.1, 0.2]
    for first, *others in (rows[:3], rows[3:]):
        assert first["kwh_change"] == 0.0
        for row in others:
            assert row["kwh"] <= first["kwh"] * (1 + 1e-6)
            assert row["kwh_change"] == pytest.approx(row["kwh"] / first["kwh"] - 1)
            saved = row["kwh_saved_per_usd_percent"]
            if saved is not None:
                assert saved * 100 * row["usd_change"] == pytest.approx(first["kwh"] - row["kwh"])


@pytest.mark.parametrize("share", ["x", "-1%", "101%", "nan"])
def test_what_if_refuses_an_invalid_share(tmp_path: Path, share: str) -> None:
    done = invoke("what-if", job_file(tmp_path), "--tolerance", share)
    assert done.exit_code == 2
    assert share in done.stderr


def test_what_if_tells_and_draws_its_frontier(tmp_path: Path) -> None:
    asked = ("what-if", job_file(tmp_path), "--policies", "cheapest", "--points", "5")
    done = invoke(*asked, "-o", "json")
    points = figures_of(done)["frontier"]
    assert len(points) > 1
    for each in points:
        assert each["finish_p50_at"] <= each["finish_p95_at"]
        assert each["gco2e"] is None or each["gco2e"] > 0
        assert each["pools"]
    text = invoke(*asked, "-o", "html").stdout
    assert len(re.findall("<title>Plan ", text)) == 2 * len(points)
    shown = invoke(*asked)
    table = shown.stdout.partition("Frontier under policy cheapest")[2].splitlines()
    assert table[2].split()[:5] == ["Plan", "$", "mean", "kWh", "CO2e"]
    numbers = [line.split()[0] for line in table if re.match(r" *\d", line)]
    assert numbers == [str(number) for number in range(1, len(points) + 1)]


@pytest.mark.parametrize("command", ["plan", "what-if"])
def test_no_probability_from_draws_is_shown_as_certain(tmp_path: Path, command: str) -> None:
    more = ("--policies", "cheapest", "--points", "3") if command == "what-if" else ("--top", "3")
    job = job_file(tmp_path)
    result = figures_of(invoke(command, job, *more, "-o", "json"))
    certain = [*result["rows"], *result.get("frontier", ())]
    assert certain
    for row in certain:
        assert row["on_time_low"] < row["on_time"] < 1
        assert row["on_time"] < row["on_time_high"]
    for form in ("table", "csv", "md", "html"):
        shown = invoke(command, job, *more, "-o", form).stdout
        assert "100.0 %" not in shown
        assert "on_time_low" in shown if form == "csv" else ">9" in shown or "&gt;9" in shown


def test_what_if_exits_with_3_where_nothing_is_feasible(tmp_path: Path, market: Path) -> None:
    done = invoke("what-if", job_file(tmp_path, "20m"), "--market", market)
    assert done.exit_code == 3
    assert isinstance(failure(done), InfeasibleError)
    assert "char-gpt" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--capacity", "sopt"), "'sopt' is none of spot, on_demand, both, policy"),
        (("--deadlines", "24y"), "expected a duration"),
        (("--policies", ","), "nothing to compare"),
    ],
)
def test_what_if_refuses_what_it_cannot_compare(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = invoke("what-if", job_file(tmp_path), *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_what_if_exits_with_5_where_every_price_is_too_old(tmp_path: Path, market: Path) -> None:
    late = ("--at", "2030-01-01T00:00:00Z")
    done = invoke("what-if", job_file(tmp_path), "--market", market, *late)
    assert done.exit_code == 5
    assert isinstance(failure(done), StaleDataError)


@pytest.mark.parametrize("command", ["plan", "what-if", "backtest"])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("strategy: mlip\n", "unknown strategy 'mlip'"),
        ("strategy: greedy_spot\nlimits: {max_zone_share: 0.5}\n", "max_zone_share"),
    ],
)
def test_a_policy_that_no_strategy_can_follow_is_refused(
    tmp_path: Path, market: Path, command: str, lines: str, said: str
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"name: x\n{lines}")
    option = "--policy" if command == "plan" else "--policies"
    done = invoke(command, job_file(tmp_path, "24h"), option, policy, "--market", market)
    assert done.exit_code == 2
    assert said in done.stderr
    assert str(policy) in done.stderr


def test_a_rule_that_holds_now_limits_the_plan(tmp_path: Path, market: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "name: nights\nstrategy: milp\nrules:\n"
        "  - {name: by-day, trigger: time_of_day, low: 8, high: 20,"
        " then: {capacity_types: [on_demand]}}\n"
    )
    job = job_file(tmp_path, "24h")

    def chosen(at: str) -> set[str]:
        done = invoke("plan", job, "-p", policy, "--market", market, "--at", at, "-o", "json")
        return {row["pool"].rsplit("/")[-1] for row in figures_of(done)["rows"] if row["chosen"]}

    assert chosen("2024-01-01T02:00:00Z") == {"spot"}
    assert chosen("2024-01-01T12:00:00Z") == {"on_demand"}


def budgeted(folder: Path, budget: str) -> Path:
    path = job_file(folder)
    path.write_text(f"{path.read_text()}budget: {budget}\n")
    return path


def test_a_budget_that_the_plan_may_exceed_is_reported(market: Path, tmp_path: Path) -> None:
    forecast = figures_of(invoke("plan", job_file(tmp_path), "--market", market, "-o", "json"))[
        "forecast"
    ]
    usd = (forecast["usd_p50"] + forecast["usd_p95"]) / 2
    tight = budgeted(tmp_path, f"{{usd: {usd}, kwh: 1e6}}")
    bold = tmp_path / "bold.yaml"
    bold.write_text("kind: policy\nversion: 1\nname: bold\nrisk: {on_time: 0.6}\n")
    by_it = ("plan", tight, "--market", market, "--policy", bold)
    result = figures_of(invoke(*by_it, "-o", "json"))
    dollars, kwh = result["budgets"]
    assert (dollars["unit"], dollars["most"], dollars["at_risk"]) == ("USD", usd, True)
    assert dollars["expected"] <= usd < dollars["high"]
    assert (kwh["unit"], kwh["at_risk"]) == ("kWh", False)
    (warning,) = (line for line in invoke(*by_it).stdout.splitlines() if "Warning" in line)
    refused = invoke("plan", tight, "--market", market)
    assert refused.exit_code == InfeasibleError.exit_code
    assert "budget: " in refused.stderr
    assert f"${usd:,.2f}" in warning


@pytest.mark.parametrize("key", ["usd", "kwh", "usd_per_month"])
def test_no_plan_exceeds_its_own_budget(market: Path, tmp_path: Path, key: str) -> None:
    done = invoke("plan", budgeted(tmp_path, f"{{{key}: 0.01}}"), "--market", market)
    assert done.exit_code == InfeasibleError.exit_code
    assert f"max_{key}" in done.stderr


@pytest.fixture
def late_prices(tmp_path: Path) -> Path:
    """A record whose spot prices are known an hour after it begins, that on demand at once."""
    pools = [SPOT, SPOT.with_capacity_type(CapacityType.ON_DEMAND)]
    spot = pool_history(SPOT, [(0, None, None), (3600, 4, 0.2)], 30 * 86400)
    uninterruptible = pool_history(pools[1], [(0, None, 3.0)], 30 * 86400)
    path = tmp_path / "late.parquet"
    write_history(market_of(spot, uninterruptible), path)
    return path


def test_a_plan_begins_where_the_record_has_prices(late_prices: Path, tmp_path: Path) -> None:
    job = job_file(tmp_path)
    job.write_text(job.read_text().replace("T4, H100", "V100"))
    done = invoke("plan", job, "--market", late_prices, "-o", "json")
    result = figures_of(done)
    assert result["made_at"] == "2023-02-15T01:00:00Z"
    assert {each["pool"] for each in result["allocations"]} == {str(SPOT)}
    assert "no price" not in done.stderr
    at_start = invoke("plan", job, "--market", late_prices, "--at", "2023-02-15T00:00:00Z")
    assert at_start.exit_code == 0
    assert "1 of 1 spot pools" in at_start.stderr
