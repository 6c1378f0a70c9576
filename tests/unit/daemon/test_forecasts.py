"""Forecasts of the daemon's jobs: made beside the ticks, from present progress, and dated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Lock, Thread

import pytest

from costopt.daemon.pages.jobs import job_page
from costopt.daemon.pages.layout import JobCharts
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import JobForecast
from costopt.daemon.watch import forecasts
from costopt.daemon.watch.forecasts import (
    MAX_AGE,
    PROCESSOR_SHARE,
    ForecastBoard,
    LearnedForecasters,
)
from costopt.domain.account import Account
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.view import View
from costopt.market.lifetime import lifetime_key
from costopt.optimize.request import PlanRequest, build_request
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.engine_fixtures import SAFE, SPOT_A, always
from tests.support.live_run import PATIENCE_S
from tests.support.market_fixtures import T0

ADAPTIVE = POLICY.replace("greedy_spot", "adaptive")
MILP = POLICY.replace("greedy_spot", "milp")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DaemonScene]:
    made = DaemonScene(tmp_path, Account())
    yield made
    made.close()


def forecast(scene: DaemonScene, name: str = "one") -> JobForecast:
    """The job's forecast after a pass of a board that has not rested yet."""
    board = scene.daemon.board
    ForecastBoard(board, scene.daemon._forecasters).update()
    made = scene.job(name).forecast
    assert made is not None
    return made


def test_a_job_has_a_forecast_that_follows_its_progress(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    assert scene.job().forecast is None, "no tick makes one"
    first = forecast(scene)
    assert first.made_at == scene.daemon.board.snapshot.now
    assert 4.0 < first.usd < 13.0
    assert first.usd <= first.usd_p95
    assert timedelta(hours=4) < first.finish_p50_at - T0 < timedelta(hours=9)
    scene.go(120)
    later = forecast(scene)
    spent = scene.job().summary.usd
    assert later.usd == pytest.approx(spent + later.usd_to_come, rel=0.02)
    assert later.usd_to_come < 0.75 * first.usd_to_come
    assert later.finish_p50_at - later.made_at < first.finish_p50_at - first.made_at


def test_a_gang_that_runs_pays_for_no_other_start(tmp_path: Path) -> None:
    scene = DaemonScene(tmp_path, histories=(always(SAFE, 20, 3.0),))
    scene.submit("one")
    scene.go(60)
    made = forecast(scene)
    assert made.usd == pytest.approx(3.0 * (4.0 + 2 / 60), rel=0.04)
    scene.close()


def test_what_the_strategies_learned_is_what_futures_are_drawn_from(scene: DaemonScene) -> None:
    scene.submit("one", policy=ADAPTIVE)
    scene.go(30)
    assert "was learned so far" in forecast(scene).source


def test_where_nothing_was_learned_the_shipped_prior_counts(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    assert "shipped prior" in forecast(scene).source


def test_what_is_submitted_is_judged_by_what_was_learned(scene: DaemonScene) -> None:
    scene.submit("one", policy=ADAPTIVE)
    scene.go(30)
    service = scene.daemon.service
    read = service.read(document("new"), ADAPTIVE, workdir=str(scene.folder), who="me")
    judged = service.planner.check(read)
    assert "was learned so far" in judged.source
    (row,) = [each for each in service.planner.impact(read).jobs if each.is_new]
    assert row.after is not None
    assert row.after.usd == pytest.approx(judged.usd, rel=0.01)


def test_a_strategy_that_follows_plans_has_the_forecast_of_its_plan(scene: DaemonScene) -> None:
    scene.submit("one", policy=MILP)
    scene.go(2)
    assert "simulated runs" in forecast(scene).source


def test_passes_take_no_more_than_their_share_of_the_processor(scene: DaemonScene) -> None:
    scene.submit(*(f"job{number}" for number in range(5)))
    scene.go(2)
    clock = [0.0]

    def stopwatch_s() -> float:
        clock[0] += 0.2
        return clock[0]

    forecast_board = ForecastBoard(scene.daemon.board, scene.daemon._forecasters, stopwatch_s)
    forecast_board.update()
    made = len(scene.daemon.board.forecasts)
    assert 0 < made < 5, "a pass ends"
    forecast_board.update()
    assert len(scene.daemon.board.forecasts) == made, "and is followed by rest"
    while len(scene.daemon.board.forecasts) < 5:
        forecast_board.update()
    assert clock[0] > forecasts.PASS_S / PROCESSOR_SHARE


def test_news_is_forecast_first_and_the_rest_in_turn(scene: DaemonScene) -> None:
    scene.submit("one", "two")
    scene.go(2)
    forecast_board = ForecastBoard(scene.daemon.board, scene.daemon._forecasters, lambda: 0.0)
    forecast_board.update()
    began = dict(scene.daemon.board.forecasts)
    forecast_board.update()
    assert scene.daemon.board.forecasts == began, "nothing has changed"
    scene.go(20)
    forecast_board.update()
    assert all(scene.daemon.board.forecasts[name] != began[name] for name in ("one", "two"))
    scene.daemon.service.cancel("two", "me")
    scene.go(3)
    forecast_board.update()
    assert set(scene.daemon.board.forecasts) == {"one"}
    made_at = scene.daemon.board.forecasts["one"].made_at
    scene.go(1 + int(MAX_AGE / timedelta(minutes=1)))
    forecast_board.update()
    assert scene.daemon.board.forecasts["one"].made_at > made_at


def test_a_standby_forecasts_nothing(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    scene.daemon.board.leads = False
    scene.daemon.forecast()
    assert not scene.daemon.board.forecasts
    scene.daemon.board.leads = True
    scene.daemon.forecast()
    assert scene.daemon.board.forecasts
    scene.daemon.board.leads = False
    scene.daemon.forecast()
    assert not scene.daemon.board.forecasts, "another daemon knows more"


def test_passes_and_ticks_do_not_disturb_each_other(scene: DaemonScene) -> None:
    scene.submit("one", "two", policy=ADAPTIVE)
    scene.go(1)
    end, failed = Event(), list[Exception]()

    def update() -> None:
        try:
            while not end.is_set():
                ForecastBoard(scene.daemon.board, scene.daemon._forecasters).update()
        except Exception as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    updating = Thread(target=update)
    updating.start()
    try:
        scene.submit("three", policy=ADAPTIVE)
        scene.go(25)
    finally:
        end.set()
        updating.join(PATIENCE_S)
    assert not failed
    assert not scene.daemon.board.tick_failure
    assert set(scene.daemon.board.forecasts) == {"one", "two", "three"}


def test_a_tick_that_takes_long_leaves_what_was_shipped(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "TICK_WAIT_S", 0.01)
    scene.submit("one", policy=ADAPTIVE)
    scene.go(10)
    with scene.daemon._ticking:
        assert "shipped prior" in forecast(scene).source


def test_the_page_dates_the_forecast(scene: DaemonScene) -> None:
    scene.submit("one")
    scene.go(2)
    forecast(scene)
    scene.go(10)
    reader = TenantReader(scene.daemon.service, None)
    page = job_page(reader, "one", JobCharts(None))
    (block,) = [block for block in page.blocks if "shipped prior" in str(block)]
    assert "Made 10 min" in str(block)


def test_a_budget_lasts_or_not_by_the_forecast(scene: DaemonScene) -> None:
    service = scene.daemon.service
    text = document("one", more="budget: {usd: 1000}\n")
    service.submit(service.read(text, POLICY, workdir=str(scene.folder), who="me"))
    scene.go(30)
    (use,) = [each for each in TenantReader(service).budgets() if each.job == "one"]
    assert use.spent_at is None
    made = forecast(scene)
    scene.daemon.board.forecasts = {"one": replace(made, usd=2000.0)}
    scene.go(1)
    (use,) = [each for each in TenantReader(service).budgets() if each.job == "one"]
    assert use.spent_at is not None


def test_a_policy_without_an_array_form_has_no_forecaster() -> None:
    makers = LearnedForecasters(Lock())
    assert makers.of(Policy("p", strategy=StrategySpec("milp"))) is None
    assert makers.of(Policy("p")) is not None
    assert makers._learned([lifetime_key("", SPOT_A, 1)], T0) is None


def test_a_job_whose_forecast_fails_costs_the_others_nothing(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", "two")
    scene.go(2)
    board = ForecastBoard(scene.daemon.board, scene.daemon._forecasters, lambda: 0.0)
    real = build_request

    def build(view: View) -> PlanRequest:
        if view.jobs[0].job.name == "one":
            raise ZeroDivisionError
        return real(view)

    monkeypatch.setattr(forecasts, "build_request", build)
    with pytest.raises(ZeroDivisionError):
        board.update()
    board.update()
    assert set(scene.daemon.board.forecasts) == {"two"}
