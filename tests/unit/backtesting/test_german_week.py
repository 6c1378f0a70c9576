"""A policy that shifts hours is credited with what it saved, in every book, on recorded hours."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from costopt.backtesting.replay import ReplayResult
from costopt.backtesting.trial import score_replay
from costopt.domain.policy import CarbonSignal
from tests.support.german_week import (
    WORK_HOURS,
    carbon_file,
    config,
    german_hours,
    grams_by_hand,
    trial,
)
from tests.support.known_figure import known

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hours() -> dict[datetime, float]:
    return german_hours()


@pytest.fixture(scope="module")
def clean(hours: dict[datetime, float]) -> frozenset[datetime]:
    """The cleanest hours of the week, with room for a restart in each stretch."""
    ordered = sorted(hours, key=lambda at: hours[at])
    return frozenset(ordered[: WORK_HOURS + 8])


@pytest.fixture(scope="module")
def carbon(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return carbon_file(tmp_path_factory.mktemp("carbon"))


@pytest.fixture(scope="module")
def runs(carbon: Path, clean: frozenset[datetime]) -> dict[str, ReplayResult]:
    """Both policies, counted by the hour."""
    backtest = config(carbon, clean)
    return {name: backtest.rehearse(trial(name)) for name in ("at_once", "shifted")}


@pytest.mark.parametrize("name", ["at_once", "shifted"])
def test_the_ledger_counts_each_hour_as_a_sum_by_hand_does(
    runs: dict[str, ReplayResult], hours: dict[datetime, float], name: str
) -> None:
    summary = runs[name].summary
    assert summary.on_time
    assert summary.gco2e == pytest.approx(grams_by_hand(runs[name], hours), rel=1e-7)
    assert summary.hourly_carbon_share == pytest.approx(1.0)
    assert score_replay(runs[name]).gco2e == summary.gco2e


def test_what_shifting_saved_is_reported_as_saved(
    runs: dict[str, ReplayResult], carbon: Path, clean: frozenset[datetime]
) -> None:
    at_once, shifted = runs["at_once"].summary, runs["shifted"].summary
    assert known(shifted.kwh) > known(at_once.kwh)  # it starts more often
    saved = 1 - known(shifted.gco2e) / known(at_once.gco2e)
    assert saved > 0.25
    annual = {name: config(None, clean).score(trial(name)) for name in ("at_once", "shifted")}
    by_mean = known(annual["shifted"].gco2e) / known(annual["at_once"].gco2e)
    assert by_mean > 1  # the annual mean knows of no clean hours


def test_a_marginal_policy_counts_marginal_hours_and_no_average_ones(
    tmp_path: Path, clean: frozenset[datetime], carbon: Path, hours: dict[datetime, float]
) -> None:
    marginal = CarbonSignal.MARGINAL
    as_recorded = config(carbon_file(tmp_path, marginal), clean).rehearse(
        trial("shifted", marginal)
    )
    assert as_recorded.summary.gco2e == pytest.approx(grams_by_hand(as_recorded, hours))
    assert as_recorded.summary.carbon_basis == "marginal intensity, hourly"
    of_the_average = config(carbon, clean).rehearse(trial("shifted", marginal))
    assert of_the_average.summary.carbon_basis == "marginal intensity, annual mean"
