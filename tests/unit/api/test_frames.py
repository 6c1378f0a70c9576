"""Results as data frames: keys, types, and what is unknown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pandas
import pytest

import costopt as co
from costopt.backtesting.ranking import PolicySummary
from costopt.backtesting.trial import Score
from costopt.domain.estimate import Basis
from costopt.frames import PLAN_FRAMES, columns_frame, plan_frame, rows_frame
from tests.support.errors import has_code
from tests.support.market_fixtures import ON_DEMAND, SPOT, T0, pool_history
from tests.support.market_fixtures import market as market_of

TRAIN = """\
name: train
work: {amount: 360000, unit: samples}
deadline: 8h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 1}
throughput: {points: [{gpu: V100, units_per_s: 30}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 60s, restore: 60s, interval: 30m}
startup: 60s
"""


@pytest.fixture(scope="module")
def market() -> co.Market:
    up = [(hour * 3600, hour % 3, 1.0 + hour % 2) for hour in range(24)]
    ends_s = 24 * 3600
    pools = pool_history(SPOT, up, ends_s), pool_history(ON_DEMAND, [(0, 99, 3.0)], ends_s)
    return co.Market(market_of(*pools, tick_s=600.0))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> co.Job:
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(TRAIN)
    return co.load_job(path, now=T0)


@pytest.fixture(scope="module")
def result(job: co.Job, market: co.Market) -> co.BacktestResult:
    return co.backtest(job, "cheapest", market, starts=2)


def is_utc(series: Any) -> bool:
    return str(getattr(series.dtype, "tz", None)) == "UTC"


def test_unknown_is_nan_and_nat() -> None:
    rows: list[dict[str, object]] = [{"usd": None, "at": None, "pool": None, "late": None, "n": 1},
            {"usd": 2.5, "at": T0, "pool": SPOT, "late": True, "n": None}]  # fmt: skip
    frame = rows_frame(rows, ("usd", "at", "pool", "late", "n", "missing_at", "missing"))
    assert frame.loc[0, ["usd", "at", "pool", "late", "missing_at", "missing"]].isna().all()
    assert frame["usd"].dtype == "float64"
    assert frame["n"].dtype == "float64"
    assert frame["missing"].dtype == "float64"
    assert is_utc(frame["at"])
    assert is_utc(frame["missing_at"])
    assert frame.loc[1, "at"] == pandas.Timestamp(T0)
    assert frame.loc[1, "pool"] == str(SPOT)
    assert not any(value is None for column in frame for value in frame[column])
    assert columns_frame({"basis": [Basis.MEASURED]}).loc[0, "basis"] == "measured"


def test_no_rows_still_have_their_columns() -> None:
    frame = rows_frame([], ("at", "usd"))
    assert list(frame.columns) == ["at", "usd"]
    assert is_utc(frame["at"])


def test_a_plan_has_the_keys_of_its_json(job: co.Job, market: co.Market) -> None:
    made = co.plan(job, market=market)
    frame = made.to_frame()
    table = made.table(top=0)
    assert list(frame.columns) == list(table.names)
    assert len(frame) == len(made.candidates)
    assert frame["chosen"].sum() == len({each.pool for each in made.allocations})
    assert is_utc(frame["finish_p50_at"])
    for what in PLAN_FRAMES[1:]:
        facts: Any = table.facts[what]
        found = plan_frame(table, what)
        assert len(found) == len(facts) == len(made.to_frame(what))
        assert all(list(found.columns) == list(fact) for fact in facts)
    assert len(made.to_frame("allocations")) == len(made.allocations) > 0
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "what")):
        made.to_frame("weather")  # type: ignore[arg-type]


def test_a_frontier_and_scenarios(job: co.Job, market: co.Market) -> None:
    found = co.what_if(job, ["cheapest", "on-demand"], points=4, market=market)
    points = found.frontier.to_frame()
    assert len(points) == len(found.frontier.points) > 0
    assert {"usd", "kwh", "gco2e", "finish_p50_at", "on_time", "pools", "chosen"} <= {*points}
    assert points["chosen"].sum() <= 1
    scenarios = found.to_frame()
    assert list(scenarios["policy"]) == ["cheapest", "on-demand"]
    assert is_utc(scenarios["deadline_at"])


def test_a_backtest(result: co.BacktestResult) -> None:
    frame = result.to_frame()
    assert list(frame.columns) == [each.name for each in fields(PolicySummary)]
    assert len(frame) == len(result.summaries)
    scores = result.to_frame("scores")
    assert len(scores) == len(result.scores)
    assert {each.name for each in fields(Score)} < {*scores.columns}
    assert is_utc(scores["start_at"])
    assert scores["start_at"].dt.tz_convert(UTC).min() == pandas.Timestamp(T0)
    means = scores.groupby("policy")["usd"].mean()
    cheapest = frame.set_index("policy").loc["cheapest", "mean_usd"]
    assert means["cheapest"] == pytest.approx(cheapest)
    optimum = scores[scores["policy"] == "hindsight optimum"]
    assert optimum["kwh"].isna().all()


def test_a_market(market: co.Market) -> None:
    frame = market.to_frame()
    assert list(frame.columns) == [
        "pool", "starts_at", "ends_at", "nodes_available", "price_usd_per_hour",
    ]  # fmt: skip
    assert set(frame["pool"]) == {str(SPOT), str(ON_DEMAND)}
    assert market.statistics()[SPOT].interruptions > 0


CALLS: dict[str, Callable[[co.Job, co.Market, co.BacktestResult], Any]] = {
    "plan": lambda job, market, _: co.plan(job, market=market).to_frame(),
    "backtest": lambda job, market, result: result.to_frame(),
    "scores": lambda job, market, result: result.to_frame("scores"),
    "market": lambda job, market, _: market.to_frame(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_without_pandas_the_extra_is_named(
    call: Callable[[co.Job, co.Market, co.BacktestResult], Any],
    job: co.Job,
    market: co.Market,
    result: co.BacktestResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(co.MissingExtraError) as caught:
        call(job, market, result)
    assert "frames" in (caught.value.hint or "")


HOSTILE = "<script>alert(1)</script>"


@pytest.mark.slow
def test_a_notebook_shows_tables_without_markup_of_names(job: co.Job, market: co.Market) -> None:
    policy = replace(co.load_policy("cheapest"), name=HOSTILE)
    results: list[Any] = [
        co.plan(job, policy, market=market),
        co.what_if(job, policy, points=3, market=market),
        co.frontier(job, policy, points=3, market=market),
        co.backtest(job, policy, market),
    ]
    for shown in results:
        text = shown._repr_html_()
        assert "<table>" in text
        assert "&lt;script&gt;" in text
        assert "<script" not in text
        assert "--" not in text.replace("<!--", "")
    chart = results[2].plot()
    assert chart.svg.startswith("<svg ")
    assert "<script" not in chart.svg
    assert "<script" not in results[3].plot().svg


@pytest.mark.slow
@pytest.mark.parametrize("what", ["dollars", "spend", "progress", "pools"])
def test_charts_of_a_backtest(what: Any, result: co.BacktestResult, tmp_path: Path) -> None:
    chart = result.plot(what)
    assert chart._repr_svg_() == chart.svg
    assert "var(--" not in chart.svg
    assert chart.alt
    assert result.plot(what) == chart
    assert chart.save(tmp_path / "chart.svg").read_text() == chart.svg
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "path")):
        chart.save(tmp_path / "chart.png")


def test_an_unknown_chart_is_refused(result: co.BacktestResult) -> None:
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "what")):
        result.plot("weather")  # type: ignore[arg-type]


def test_a_frontier_without_a_plan_has_no_chart(job: co.Job, market: co.Market) -> None:
    late = co.what_if(job, "cheapest", deadlines=[600], market=market, points=0).scenarios[0].job
    nothing = co.frontier(late, market=market, points=3)
    assert nothing.points == ()
    assert len(nothing.to_frame()) == 0
    with pytest.raises(co.InfeasibleError):
        nothing.plot()
