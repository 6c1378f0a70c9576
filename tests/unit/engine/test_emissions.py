"""CO2e counts by the hour, the region and the signal that a job's policy counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from costopt.controller.late_carbon import LateCarbon, recent_jobs
from costopt.domain.account import Account
from costopt.domain.contracts import ContractKind, ElectricityContract
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import (
    CarbonIntensityRecorded,
    ElectricityContractsRecorded,
    NodeLaunched,
    SignalStale,
)
from costopt.domain.fleet import EndCause
from costopt.domain.market import Pool
from costopt.domain.period import Period
from costopt.domain.policy import CarbonSignal, Objective
from costopt.domain.ports import Ledger, SignalProblem
from costopt.domain.power import NodePower
from costopt.domain.view import Target
from costopt.engine.cohort import JobTerms
from costopt.ledger.fold_cache import save_folds, summaries
from costopt.ledger.job_account import accounts
from costopt.ledger.node_meter import to_milliseconds
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.crashing_ledger import Crash, CrashingLedger
from tests.support.engine_fixtures import HOUR_S, SPOT_A, Follow, Scene, always, rules, task
from tests.support.known_figure import known
from tests.support.market_fixtures import T0

HOUR = timedelta(hours=1)
US_EAST = "aws/us-east-1"
ANNUAL = {CarbonSignal.AVERAGE: 400.0, CarbonSignal.MARGINAL: 700.0}


class TwoSignals:
    """1 kW busy and 0.5 kW idle per node, at the meter."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        return NodePower(500, 1000, 1.0, ANNUAL[carbon_signal], Basis.MODELLED, 0.1, "test")


class ByHour:
    """Average intensities of one region by the hour from T0."""

    def __init__(self, *intensities: float | None) -> None:
        self.intensities = intensities
        self.reported: tuple[SignalProblem, ...] = ()

    def intensity(
        self, region: str, hour_at: datetime, carbon_signal: CarbonSignal
    ) -> Estimate | None:
        index = (hour_at - T0) // HOUR
        if region != US_EAST or carbon_signal is not CarbonSignal.AVERAGE:
            return None
        value = self.intensities[index] if index < len(self.intensities) else None
        return None if value is None else Estimate.exact(value, Basis.MODELLED, "test", hour_at)

    @property
    def revision(self) -> int:
        return hash(self.intensities)

    def problems(self, now: datetime) -> Sequence[SignalProblem]:
        return self.reported


def scene(
    carbon: ByHour | None,
    work_s: float = 4 * HOUR_S,
    contracts: Sequence[ElectricityContract] = (),
    ledger: Ledger | None = None,
) -> Scene:
    made = Scene(
        always(SPOT_A, 9, 2.0),
        jobs=[task(work_s)],
        powers=TwoSignals(),
        carbon=carbon,
        account=Account(electricity_contracts=tuple(contracts)),
        ledger=ledger,
    )
    made.strategy = Follow(Target(SPOT_A, 1))
    made.restart()
    return made


def grams_by_hour(made: Scene, intensities: Mapping[int, float], annual: float) -> float:
    """From the timeline's rows: idle and busy stretches cut at every hour."""
    total = 0.0
    for row in made.engine.journal.accounts["job"].intervals(made.clock.now()):
        begin, until = row.launched_at, row.ended_at or made.clock.now()
        while begin < until:
            end = min(until, T0 + ((begin - T0) // HOUR + 1) * HOUR)
            trained = sum(
                (max(timedelta(), min(b, end) - max(a, begin)) for a, b in row.busy), timedelta()
            )
            kwh = (0.5 * ((end - begin) - trained) + 1.0 * trained) / HOUR
            total += kwh * intensities.get((begin - T0) // HOUR, annual)
            begin = end
    return total


def test_each_hour_s_energy_emits_by_its_intensity() -> None:
    made = scene(ByHour(100.0, 900.0, 50.0, 300.0, 200.0))
    made.finish()
    summary = made.summary()
    hourly = dict(enumerate((100.0, 900.0, 50.0, 300.0, 200.0)))
    assert summary.gco2e == pytest.approx(grams_by_hour(made, hourly, 400.0))
    assert summary.gco2e != pytest.approx(known(summary.kwh) * 400)
    assert summary.carbon_basis == "average intensity, hourly"


def test_hours_without_a_record_count_by_the_annual_mean_and_say_so() -> None:
    made = scene(ByHour(100.0, None, 50.0))
    made.finish()
    summary = made.summary()
    assert summary.gco2e == pytest.approx(grams_by_hour(made, {0: 100.0, 2: 50.0}, 400.0))
    assert summary.carbon_basis is not None
    assert "annual mean" in summary.carbon_basis
    hours = [e.hour_at for e in made.events(CarbonIntensityRecorded)]
    assert hours == [T0, T0 + 2 * HOUR]


def test_without_carbon_data_the_annual_mean_counts_and_says_so() -> None:
    made = scene(None)
    made.finish()
    summary = made.summary()
    assert summary.gco2e == pytest.approx(known(summary.kwh) * 400)
    assert summary.carbon_basis == "average intensity, annual mean"
    assert not made.events(CarbonIntensityRecorded)


def test_a_controller_that_was_away_records_the_hours_that_it_missed() -> None:
    hours = (100.0, 900.0, 50.0, 300.0, 200.0, 600.0)
    watched, away = scene(ByHour(*hours), 10 * HOUR_S), scene(ByHour(*hours), 10 * HOUR_S)
    for made in (watched, away):
        made.go(600)
    watched.go(5 * HOUR_S)
    away.clock.sleep(4 * HOUR_S)
    away.restart()
    away.go(HOUR_S)
    assert [e.hour_at for e in away.events(CarbonIntensityRecorded)] == [
        e.hour_at for e in watched.events(CarbonIntensityRecorded)
    ]
    assert away.summary().gco2e == pytest.approx(grams_by_hour(away, dict(enumerate(hours)), 400))


def test_a_node_that_ended_while_nothing_watched_counts_by_the_hour() -> None:
    made = scene(ByHour(100.0, 900.0, 50.0, 300.0), 10 * HOUR_S)
    made.go(600)
    (node,) = made.living()
    made.clock.sleep(2 * HOUR_S)
    made.cloud.inner.terminate(node.node_id)
    made.restart()
    made.tick()
    rows = made.engine.journal.accounts["job"].intervals(made.clock.now())
    ended = next(row for row in rows if row.node_id == node.node_id)
    assert ended.cause is EndCause.RELEASED
    assert ended.carbon_basis == "average intensity, hourly"


def test_every_job_counts_by_the_signal_of_its_own_policy() -> None:
    made = scene(ByHour(100.0, 900.0, 50.0, 300.0))
    marginal = replace(
        rules("greedy_spot"), objective=Objective(carbon_signal=CarbonSignal.MARGINAL)
    )
    other = Follow(Target(SPOT_A, 1))
    made.engine.add(task(name="other"), JobTerms(marginal, other))
    made.go(2 * HOUR_S)
    (launched,) = made.events(NodeLaunched, "other")
    assert launched.gco2e_per_kwh == 700.0
    assert launched.carbon_signal is CarbonSignal.MARGINAL
    assert other.views[0].powers[SPOT_A].gco2e_per_kwh == 700.0
    assert not made.events(CarbonIntensityRecorded, "other")
    assert made.summary("other").gco2e == pytest.approx(known(made.summary("other").kwh) * 700)
    (launched,) = made.events(NodeLaunched)
    assert launched.gco2e_per_kwh == 400.0
    assert made.events(CarbonIntensityRecorded)


def test_an_hour_that_becomes_known_late_or_changes_is_recorded_again() -> None:
    carbon = ByHour(None, 900.0)
    made = scene(carbon)
    made.go(1800)
    assert not made.events(CarbonIntensityRecorded)
    carbon.intensities = (100.0, 900.0)
    made.go(HOUR_S)
    carbon.intensities = (100.0, 500.0)
    made.go(HOUR_S)
    written = [(e.hour_at, e.gco2e_per_kwh) for e in made.events(CarbonIntensityRecorded)]
    assert written == [(T0, 100.0), (T0 + HOUR, 900.0), (T0 + HOUR, 500.0)]
    expected = grams_by_hour(made, {0: 100.0, 1: 500.0}, 400.0)
    assert made.summary().gco2e == pytest.approx(expected)


def test_a_problem_of_the_source_is_recorded_once_while_it_lasts() -> None:
    carbon = ByHour(100.0)
    carbon.reported = (SignalProblem("watttime", "stale", "PJM: of yesterday"),)
    made = scene(carbon)
    made.go(1800)
    carbon.reported = ()
    made.go(600)
    carbon.reported = (SignalProblem("watttime", "stale", "PJM: of yesterday"),)
    made.go(600)
    stale = made.events(SignalStale)
    assert [(event.source, "annual mean" in event.message) for event in stale] == [
        ("watttime", True),
        ("watttime", True),
    ]


WIND = ElectricityContract("wind", "aws", 12.0, ("us-east-1",))
ELSEWHERE = ElectricityContract("sun", "aws", 30.0, ("eu-west-1",))


def assert_sums(made: Scene) -> None:
    """Node intervals, the engine's totals and those of a fold from scratch are the same."""
    summary, now = made.summary(), made.clock.now()
    rows = made.engine.journal.accounts["job"].intervals(now)
    assert sum(known(row.gco2e) for row in rows) == pytest.approx(known(summary.gco2e), rel=1e-12)
    assert accounts(made.ledger)["job"].summary(now) == summary


def test_market_based_emissions_are_by_the_contracts_of_the_account() -> None:
    made = scene(ByHour(100.0, 900.0, 50.0, 300.0, 200.0), contracts=[WIND, ELSEWHERE])
    made.finish()
    summary = made.summary()
    assert summary.market_based_gco2e == pytest.approx(known(summary.kwh) * 12)
    assert summary.carbon_signal == "average"
    assert_sums(made)
    rows = made.engine.journal.accounts["job"].intervals(made.clock.now())
    assert sum(known(row.market_based_gco2e) for row in rows) == summary.market_based_gco2e
    assert len(made.events(ElectricityContractsRecorded)) == 1


def test_market_based_emissions_without_a_contract_are_unknown() -> None:
    for contracts in ((), [ELSEWHERE]):
        made = scene(ByHour(100.0, 900.0), contracts=contracts)
        made.go(1.5 * HOUR_S)
        assert made.summary().market_based_gco2e is None
        assert known(made.summary().gco2e) > 0


@pytest.mark.slow
def test_new_contracts_count_for_the_whole_job_and_end_by_their_day() -> None:
    made = scene(ByHour(100.0, 900.0, 50.0), 30 * HOUR_S, [WIND])
    made.go(HOUR_S)
    first_day = replace(WIND, gco2e_per_kwh=20.0, period=Period(last_day=T0.date()))
    mix = ElectricityContract("mix", "aws", 400.0, kind=ContractKind.RESIDUAL_MIX)
    account = Account(electricity_contracts=(mix, first_day))
    made.settings = replace(made.settings, account=account)
    made.restart()
    made.go(HOUR_S)
    summary = made.summary()
    assert summary.market_based_gco2e == pytest.approx(known(summary.kwh) * 20)
    made.go(27 * HOUR_S)
    later = made.summary()
    midnight = T0 + timedelta(days=1)
    first, rest = made.engine.journal.accounts["job"].fleet, known(later.kwh)
    before = sum(sum(n.uwh(to_milliseconds(midnight))) for n in first.nodes.values()) / 1e9
    expected = before * 20 + (rest - before) * 400
    assert later.market_based_gco2e == pytest.approx(expected)
    assert len(made.events(ElectricityContractsRecorded)) == 2
    assert_sums(made)


def test_a_node_counts_by_the_signal_it_was_launched_under() -> None:
    made = scene(ByHour(100.0, 900.0, 50.0, 300.0), 10 * HOUR_S)
    made.go(HOUR_S)
    made.policy = replace(made.policy, objective=Objective(carbon_signal=CarbonSignal.MARGINAL))
    made.restart()
    made.go(HOUR_S)
    (node,) = made.engine.journal.accounts["job"].intervals(made.clock.now())
    assert node.carbon_basis == "average intensity, hourly"
    assert made.summary().carbon_signal == "average"
    hours = [(e.hour_at, e.carbon_signal) for e in made.events(CarbonIntensityRecorded)]
    assert hours == [(T0 + n * HOUR, CarbonSignal.AVERAGE) for n in range(2)]


HOURS = (100.0, 900.0, 50.0, 300.0, 200.0)


def test_hours_of_an_outage_are_recorded_once_when_it_is_over_also_after_a_restart() -> None:
    carbon = ByHour()
    made = scene(carbon)
    made.finish()
    assert not made.events(CarbonIntensityRecorded)
    made.restart()
    made.clock.sleep(3 * 24 * HOUR_S)
    carbon.intensities = HOURS
    for _ in range(3):
        made.tick()
    made.restart()
    made.tick()
    hours = [(e.hour_at, e.gco2e_per_kwh) for e in made.events(CarbonIntensityRecorded)]
    assert hours == [(T0 + n * HOUR, HOURS[n]) for n in range(len(hours))]
    assert len(hours) == 5
    assert made.summary().gco2e == pytest.approx(grams_by_hour(made, dict(enumerate(HOURS)), 400))
    assert made.summary().carbon_basis == "average intensity, hourly"
    assert_sums(made)


@pytest.mark.parametrize("durable", [True, False])
def test_a_controller_killed_as_it_records_late_hours_books_nothing_twice(durable: bool) -> None:
    carbon = ByHour()
    made = scene(carbon)
    made.finish()
    carbon.intensities = HOURS
    kept = made.ledger
    made.ledger = dying = CrashingLedger(1, durable)
    for recorded in kept.events():
        dying.inner.append(recorded.event)
    made.restart()
    with pytest.raises(Crash):
        made.tick()
    made.ledger = dying.inner
    made.restart()
    made.tick()
    hours = [e.hour_at for e in made.events(CarbonIntensityRecorded)]
    assert hours == [T0 + n * HOUR for n in range(5)]
    assert made.summary().gco2e == pytest.approx(grams_by_hour(made, dict(enumerate(HOURS)), 400))


def test_hours_of_ended_jobs_are_recorded_without_an_engine(tmp_path: Path) -> None:
    with open_sqlite_ledger(tmp_path / "ledger.sqlite") as ledger:
        carbon = ByHour(100.0)
        made = scene(carbon, ledger=ledger)
        made.finish()
        save_folds(ledger)
        now = made.clock.now() + 2 * HOUR
        late = LateCarbon(ledger, carbon)
        assert [*late.book((), now)] == []
        carbon.intensities = HOURS
        assert [*LateCarbon(ledger, carbon).book(("job",), now)] == []
        (fold,) = late.book((), now)
        assert [*late.book((), now)] == []
        assert [*LateCarbon(ledger, carbon).book((), now)] == []
        assert [e.hour_at for e in made.events(CarbonIntensityRecorded)] == [
            T0 + n * HOUR for n in range(5)
        ]
        expected = grams_by_hour(made, dict(enumerate(HOURS)), 400)
        assert fold.account.summary(now).gco2e == pytest.approx(expected)
        (summary,) = summaries(ledger, lambda _, at: at)
        assert summary.gco2e == pytest.approx(expected)
        assert not [*recent_jobs(ledger, now + timedelta(days=15))]
