"""The German week of March 2022: its recorded intensities, a market, and emissions by hand."""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.backtesting.backtest import backtest_config
from costopt.backtesting.replay import ReplayResult
from costopt.backtesting.trial import BacktestConfig, Trial, Window
from costopt.domain.account import UNLIMITED
from costopt.domain.events import NodeLaunched
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import CarbonSignal, Policy
from costopt.domain.view import Decision, Desired, Target, View
from costopt.energy.carbon_csv import import_carbon_csv
from costopt.energy.carbon_files import write_carbon
from costopt.ledger.job_account import JobAccount
from tests.support.engine_fixtures import HOUR_S, rules, task

MONDAY = datetime(2022, 3, 7, tzinfo=UTC)
WEEK = timedelta(days=7)
HOUR = timedelta(hours=1)
WORK_HOURS = 48
FRANKFURT = Pool(
    "aws", "eu-central-1", "eu-central-1a", "p3.2xlarge", CapacityType.ON_DEMAND
)  # fmt: skip


def record() -> Path:
    """The recorded hours of 47 grid zones; skips the test where they are not there."""
    folder = os.environ.get("COSTOPT_DATA")
    if not folder:
        pytest.skip("COSTOPT_DATA names no folder with recorded carbon intensities")
    return Path(folder) / "energy" / "carbon_intensity_hourly_2021-10_2022-12.csv.gz"


def german_hours() -> dict[datetime, float]:
    """gCO2e/kWh of each hour of the week, from the CSV file; gaps on the line between hours."""
    known: dict[datetime, float] = {}
    with gzip.open(record(), "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(next(iter(row.values())))
            if MONDAY - HOUR * 12 <= at < MONDAY + WEEK + HOUR * 12 and row["DE"]:
                known[at] = float(row["DE"])
    hours = {}
    for n in range(7 * 24):
        at = MONDAY + n * HOUR
        before = max(each for each in known if each <= at)
        after = min(each for each in known if each >= at)
        share = (at - before) / (after - before) if after > before else 0.0
        hours[at] = known[before] + share * (known[after] - known[before])
    return hours


class CleanHours:
    """Runs in the hours given, and on what is left of the slack; saves and releases in between."""

    def __init__(self, hours: frozenset[datetime]) -> None:
        self.hours = hours

    def decide(self, view: View) -> Desired:
        hour_at = view.now.replace(minute=0, second=0, microsecond=0)
        targets = (Target(FRANKFURT, 1),) if hour_at in self.hours else ()
        return Desired(tuple(Decision(jv.job.name, targets, "clean hours") for jv in view.jobs))


def training() -> Job:
    """48 hours on one V100, due a week after it starts."""
    job = task(WORK_HOURS * HOUR_S)
    return replace(job, start_at=MONDAY, deadline_at=MONDAY + WEEK)


def policy(name: str, signal: CarbonSignal = CarbonSignal.AVERAGE) -> Policy:
    made = rules(name)
    return replace(made, name=name, objective=replace(made.objective, carbon_signal=signal))


def german_market() -> MarketHistory:
    """Frankfurt on demand at one price for the week."""
    states = (MarketState(MONDAY, 4, 4.234),)
    history = PoolHistory(FRANKFURT, states, MONDAY + 3 * WEEK)
    return MarketHistory("german-week", {FRANKFURT: history}, 300.0, "typed for a test")


def config(carbon: Path | None, clean: frozenset[datetime]) -> BacktestConfig:
    """Backtests of ``at_once`` and of ``shifted``, which runs in the ``clean`` hours."""
    every = frozenset(MONDAY + n * HOUR for n in range(21 * 24))
    return backtest_config(
        {"german-week": german_market()},
        notice_s=120.0,
        cooldown_s=300.0,
        price_forecasts=False,
        carbon=carbon,
        account=UNLIMITED,
        past_s=0.0,
        strategies={"at_once": lambda: CleanHours(every), "shifted": lambda: CleanHours(clean)},
    )


def carbon_file(folder: Path, signal: CarbonSignal = CarbonSignal.AVERAGE) -> Path:
    """The record as `costopt carbon import` writes it."""
    out = folder / f"{signal.value}.parquet"
    write_carbon(import_carbon_csv([record()], signal), out)
    return out


def trial(name: str, signal: CarbonSignal = CarbonSignal.AVERAGE) -> Trial:
    return Trial(Window("german-week", training()), policy(name, signal))


def account_of_run(result: ReplayResult) -> JobAccount:
    account = JobAccount("job")
    for recorded in result.events:
        account.apply(recorded.event)
    return account


def grams_by_hand(result: ReplayResult, hours: dict[datetime, float]) -> float:
    """Watts × PUE × time × the hour's intensity, over every node, cut at each hour."""
    launched = {
        recorded.event.node_id: recorded.event
        for recorded in result.events
        if isinstance(recorded.event, NodeLaunched)
    }
    total = 0.0
    for row in account_of_run(result).intervals(result.summary.now):
        node, begin = launched[row.node_id], row.launched_at
        until = row.ended_at or result.summary.now
        assert node.idle_w is not None
        assert node.busy_w is not None
        assert node.pue is not None
        while begin < until:
            hour_at = begin.replace(minute=0, second=0, microsecond=0)
            end = min(until, hour_at + HOUR)
            busy = sum(
                (max(timedelta(), min(b, end) - max(a, begin)) for a, b in row.busy), timedelta()
            )
            watt_hours = (node.idle_w * ((end - begin) - busy) + node.busy_w * busy) / HOUR
            total += watt_hours * node.pue / 1000 * hours[hour_at]
            begin = end
    return total
