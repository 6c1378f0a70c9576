"""A backtest on Ray: the same scores, and what is said where it cannot be."""

from __future__ import annotations

import sys
import time

import pytest

from benchmarks.fleet_scale import START_AT, generated_jobs
from costopt.backtesting.backtest import shift_job
from costopt.backtesting.executors import LOCAL, require_ray, run_on_ray
from costopt.backtesting.fleet.policies import FleetTrial, replay_fleet
from costopt.backtesting.trial import Trial, Window
from costopt.domain.cluster import Cluster
from costopt.domain.errors import CostoptError, MarketError, MissingExtraError
from tests.support.engine_fixtures import HOUR_S, rules
from tests.support.errors import has_code
from tests.support.market_fixtures import after
from tests.unit.backtesting.test_backtest import (
    JOB,
    config_on,
    every_trial,
    figures_of,
    recorded,
    run_here,
)

# Ray's own start leaves sockets and files to the garbage collector.
on_a_real_one = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def ray_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray gives its own node 30 s to start: on a busy machine it takes longer."""
    pytest.importorskip("ray")
    from ray._private import services

    ask = services.get_node

    def patiently(*arguments: object) -> object:
        give_up_at = time.monotonic() + 240.0
        while True:
            try:
                return ask(*arguments)  # type: ignore[no-untyped-call]
            except RuntimeError:
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(0.1)

    monkeypatch.setattr(services, "get_node", patiently)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError) as caught:
        require_ray()
    assert caught.value.hint == "pip install 'costopt-spot[ray]'"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.exhaustive("Ray")
@on_a_real_one
@pytest.mark.usefixtures("ray_has_time")
def test_ray_scores_as_this_process_does() -> None:
    record = recorded()
    trials = every_trial(record, 2)
    config = config_on(record)
    assert figures_of(run_on_ray(config, trials, LOCAL, 2)) == figures_of(run_here(config, trials))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.exhaustive("Ray")
@on_a_real_one
@pytest.mark.usefixtures("ray_has_time")
def test_a_fleet_is_replayed_on_ray_as_here() -> None:
    work = generated_jobs(12)[0]
    trial = FleetTrial(work, work.window(START_AT, 1)[1], Cluster("small", (8, 8)), 1.0)
    policies = ("static", "gittins", "priced")
    assert replay_fleet(trial, policies, LOCAL) == replay_fleet(trial, policies)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.exhaustive("Ray")
@on_a_real_one
@pytest.mark.usefixtures("ray_has_time")
def test_what_goes_wrong_on_ray_is_reported_with_its_hint() -> None:
    record = recorded()
    too_late = Trial(Window(record.name, shift_job(JOB, after(39 * HOUR_S))), rules("on_demand"))
    with pytest.raises(MarketError, check=has_code("outside_market")) as caught:
        list(run_on_ray(config_on(record), [too_late], LOCAL, 1))
    assert caught.value.hint


@pytest.mark.process
@pytest.mark.slow
@on_a_real_one
def test_a_cluster_that_does_not_answer_is_named() -> None:
    pytest.importorskip("ray")
    with pytest.raises(CostoptError, check=has_code("no_cluster")):
        list(run_on_ray(config_on(recorded()), [], "127.0.0.1:1"))
