"""Forecasts by replays: of the futures that the array form is run in, and of a user's strategy."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.domain.account import UNLIMITED, Account, Quota
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Objective, ObjectiveTerm, Policy, StrategySpec
from costopt.market.history_file import write_history
from costopt.optimize.planner import prepare
from costopt.planning.forecast import replay_forecast
from costopt.planning.forecast.forecaster import forecast_job
from costopt.planning.forecast.replay_forecast import needs_replays, replay_job, replay_notes
from costopt.planning.many_jobs import plan_account
from costopt.planning.quotes import QuoteSet, recorded_quotes
from costopt.planning.request import build_plan_request, plan_job
from costopt.planning.what_if import forecast_notes, plan_scenarios
from costopt.spec import load_job
from tests.support.installed_strategy import MINE, install_strategy
from tests.unit.planning.test_forecast import JOB, job_at, market, phased_job, quotes_of

pytestmark = pytest.mark.process

OWN = Policy("theirs", strategy=StrategySpec("mine"))
HANGS = MINE.replace("options =", "import time; time.sleep(600)\n        options =")
DIES = MINE.replace("options =", "import os; os._exit(1)\n        options =")
TALKS = MINE.replace("options =", "print('{}', flush=True)\n        options =")


def listed(seen: QuoteSet) -> QuoteSet:
    return QuoteSet(seen.now, seen.offers, "prices alone")


@pytest.mark.parametrize("recorded", [True, False], ids=["record", "prior"])
def test_replays_come_to_what_the_forecast_says_of_the_same_futures(
    recorded: bool, tmp_path: Path
) -> None:
    job, seen = quotes_of(market("harsh"), tmp_path)
    seen = seen if recorded else listed(seen)
    policy = Policy("cheap")
    made = replay_job(job, policy, seen, UNLIMITED, 12, 120.0)
    assert made is not None
    assert made.forecast is not None
    assert (made.requested, made.done, made.in_time, made.failure) == (12, 12, 12, "")
    assert ("past windows" in made.source) == recorded
    request = build_plan_request((job,), policy, seen, UNLIMITED)
    forecast = forecast_job(request, prepare(request)[0][0], seen.history)
    assert forecast is not None
    near = max(0.1 * forecast.usd_mean, 4 * made.forecast.usd_error)
    assert made.forecast.usd_mean == pytest.approx(forecast.usd_mean, abs=near)
    assert made.forecast.kwh == pytest.approx(forecast.kwh, rel=0.1)


def test_replays_without_interruptible_capacity_all_cost_the_same(tmp_path: Path) -> None:
    job, seen = quotes_of(market(), tmp_path)
    uninterruptible = [o for o in seen.offers if o.pool.capacity_type is CapacityType.ON_DEMAND]
    only = QuoteSet(seen.now, tuple(uninterruptible), "prices alone")
    made = replay_job(job, Policy("p", strategy=StrategySpec("milp")), only, UNLIMITED, 2, 120.0)
    assert made is not None
    assert made.forecast is not None
    assert made.forecast.usd_error == 0
    assert made.forecast.usd_mean == pytest.approx(0.526 * 2.1, rel=0.1)


def test_what_no_offer_can_run_is_not_replayed(tmp_path: Path) -> None:
    _, seen = quotes_of(market(), tmp_path)
    path = tmp_path / "other.yaml"
    path.write_text(JOB.replace("T4", "H100"))
    other = load_job(path, seen.now)
    assert replay_job(other, Policy("cheap"), seen, UNLIMITED, 2, 120.0) is None


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("source", [MINE, TALKS], ids=["quiet", "prints"])
def test_a_user_s_strategy_is_forecast_by_replays(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_strategy(monkeypatch, tmp_path, "mine", "their_module:Mine", source)
    job, seen = quotes_of(market(), tmp_path)
    assert needs_replays(OWN)
    made = plan_job(job, OWN, seen)
    forecast = made.forecast_of(job.name)
    assert forecast is not None
    assert forecast.on_time.source.startswith("1 engine replays")
    assert made.proposal_of(job.name) is not None
    (note,) = replay_notes(OWN, (made,))
    assert "'mine' is forecast by 1 engine replays" in note
    (scenario,) = plan_scenarios((job,), (OWN,), ("policy",), seen, UNLIMITED)
    assert list(forecast_notes((scenario,))) == [note]
    together = plan_account((job,), OWN, seen).plan
    assert together.forecast_of(job.name) == forecast


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("source", [HANGS, DIES], ids=["hangs", "dies"])
def test_a_strategy_that_never_ends_leaves_the_forecast_of_the_plan(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(replay_forecast, "FORECAST_LIMIT_S", 4.0)
    install_strategy(monkeypatch, tmp_path, "mine", "their_module:Mine", source)
    job, seen = quotes_of(market(), tmp_path)
    began_s = time.monotonic()
    made = plan_job(job, OWN, seen)
    assert time.monotonic() - began_s < 40.0
    assert made.forecast_of(job.name) is not None
    assert not made.proposals
    (note,) = replay_notes(OWN, (made,))
    assert "strategy 'mine' was replayed less than 5 times" in note


def three_jobs(folder: Path, now: datetime) -> list[Job]:
    for name in ("a", "b", "c"):
        (folder / f"{name}.yaml").write_text(JOB.replace("counted", name).replace("saves", name))
    return [load_job(folder / f"{name}.yaml", now) for name in ("a", "b", "c")]


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_jobs_that_contend_for_a_quota_are_forecast_together(tmp_path: Path) -> None:
    """Each has a start and two hours to do in three and a half; one node is for one of them."""
    _, seen = quotes_of(market("harsh"), tmp_path)
    jobs = three_jobs(tmp_path, seen.now)
    alone = plan_account(jobs, Policy("p"), seen, explain=False).plan
    assert all(f.on_time.value > 0.99 for _, f in alone.forecasts)
    assert all(f.on_time.source.startswith("400 futures") for _, f in alone.forecasts)
    quota = Quota("on-demand", capacity_type=CapacityType.ON_DEMAND, max_nodes=1)
    shared = plan_account(jobs, Policy("p"), seen, Account(quotas=(quota,)), explain=False).plan
    forecasts = dict(shared.forecasts)
    assert all("engine replays" in f.on_time.source for f in forecasts.values())
    assert sum(f.on_time.value for f in forecasts.values()) < 2.5
    assert shared.status is PlanStatus.INFEASIBLE
    assert "risk" in (shared.binding or "")
    roomy = Account(quotas=(replace(quota, max_nodes=3),))
    assert plan_account(jobs, Policy("p"), seen, roomy, explain=False).plan.forecasts == (
        alone.forecasts
    )


@pytest.mark.usefixtures("unhurried")
def test_further_aims_and_phases_of_other_sizes_are_forecast_by_replays(tmp_path: Path) -> None:
    job, seen = quotes_of(market(), tmp_path)
    aims = Policy("greener", objective=Objective(then=(ObjectiveTerm.KWH,), tolerance=0.05))
    phased = phased_job(tmp_path, seen.now)
    for each, policy in ((job, aims), (phased, Policy("cheap"))):
        made = plan_job(each, policy, seen)
        forecast = made.forecast_of(each.name)
        assert forecast is not None
        assert forecast.on_time.source.startswith("1 engine replays")
        assert made.proposal_of(each.name) is not None


def test_a_strategy_that_fails_is_said_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fails = MINE.replace("options =", "raise ValueError('no idea')\n        options =")
    install_strategy(monkeypatch, tmp_path, "mine", "their_module:Mine", fails)
    job, seen = quotes_of(market(), tmp_path)
    made = replay_job(job, OWN, seen, UNLIMITED, 2, 120.0)
    assert made is not None
    assert made.done == 2
    assert "no idea" in made.failure


def test_the_command_verifies_a_plan(tmp_path: Path) -> None:
    history = market()
    now = history.starts_at + timedelta(days=10)
    job_at(tmp_path, now)
    write_history(history, tmp_path / "m.parquet")
    words = ["plan", str(tmp_path / "job.yaml"), "--market", str(tmp_path / "m.parquet")]
    words += ["--at", f"{now:%Y-%m-%dT%H:%M:%SZ}", "--verify", "2"]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    assert "Verified by 2 engine replays of futures, by past windows" in " ".join(
        shown.output.split()
    )
    written = CliRunner().invoke(cli, [*words, "--output", "json"])
    found = json.loads(written.stdout)["verification"]
    assert (found["requested"], found["done"], found["in_time"]) == (2, 2, 2)
    assert found["usd_mean"] > 0


@pytest.mark.parametrize("count", ["0", "-1", "1001", "many", "1.5"])
def test_a_count_of_replays_that_cannot_be_is_refused(count: str, tmp_path: Path) -> None:
    job_at(tmp_path, recorded_quotes(market(), None).now)
    done = CliRunner().invoke(cli, ["plan", str(tmp_path / "job.yaml"), "--verify", count])
    assert done.exit_code == 2
    assert "--verify" in done.output


def test_replays_are_of_one_job(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(JOB)
    (tmp_path / "b.yaml").write_text(JOB.replace("counted", "other").replace("saves", "b"))
    done = CliRunner().invoke(cli, ["plan", str(tmp_path), "--verify", "3"])
    assert done.exit_code == 2
    assert "--verify is for one job" in done.output
