"""Spot as overflow of owned GPUs: the record of spot, Starburst's rules, and priced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from benchmarks.overflow_replay import OverflowReplay, SpotRecord, replay_starburst
from costopt.backtesting.fleet.replay import FleetReplay, ReplaySettings
from costopt.optimize.rounds.gangs import GangTable, SpeedCurve
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.workload.workload import RecordedJob, Workload

START_AT = datetime(2026, 3, 1, tzinfo=UTC)
HOUR_S = 3600.0


def _jobs(*rows: tuple[float, float, int]) -> Workload:
    return Workload.of(
        [
            RecordedJob(f"j{n}", "t", START_AT + timedelta(seconds=at_s), lasts_s, gpus)
            for n, (at_s, lasts_s, gpus) in enumerate(rows)
        ],
        title="made",
        source="test",
        starts_at=START_AT,
    )


def _steady(usd_per_hour: float = 2.0, start_s: float = 0.0) -> SpotRecord:
    return SpotRecord.of(600.0, np.full((144, 1), usd_per_hour), start_s)


def test_spot_costs_its_price_while_held_and_starts_take_time() -> None:
    end_s, usd = _steady(start_s=600.0).run(0.0, HOUR_S)
    # The first start of the record is that of the job.
    assert end_s == pytest.approx(HOUR_S + 600)
    assert usd == pytest.approx(2.0 * (HOUR_S + 600) / HOUR_S)


def test_without_capacity_work_waits_and_pays_nothing() -> None:
    prices = np.array([[1.0, 3.0]] * 6 + [[np.nan, np.nan]] * 6 + [[np.nan, 3.0]] * 132)
    spot = SpotRecord.of(600.0, prices, 0.0)
    end_s, usd = spot.run(0.0, 2 * HOUR_S)
    assert end_s == pytest.approx(3 * HOUR_S)
    assert usd == pytest.approx(1.0 + 3.0)
    # Beyond its end the record begins again.
    later_s, _ = spot.run(86_400.0, HOUR_S)
    assert later_s == pytest.approx(86_400 + HOUR_S)


def test_starburst_waits_as_its_rule_says() -> None:
    work = _jobs((0, HOUR_S, 8), (60, HOUR_S, 4), (120, HOUR_S, 4))
    end_s, usd = replay_starburst(work, 8, _steady(), np.array([0.0, 600.0, 2 * HOUR_S]))
    assert end_s.tolist() == pytest.approx([HOUR_S, 60 + 600 + HOUR_S, 2 * HOUR_S])
    assert usd == pytest.approx(4 * 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(("worth_usd", "goes"), [(0.1, False), (100.0, True)])
def test_jobs_that_wait_overflow_where_their_time_is_worth_it(worth_usd: float, goes: bool) -> None:
    work = _jobs(*[(0, 4 * HOUR_S, 8)] * 12)
    table = GangTable.of(
        [SpeedCurve(shrink=1, grow=1).options(8, None, None)] * 12, work.gpus.tolist()
    )
    replay = OverflowReplay(
        work, work.window(START_AT, 1)[1], table, (8,) * 2, PricedPolicy(), ReplaySettings()
    )
    replay.spot, replay.worth_usd = _steady(start_s=300.0), worth_usd
    schedule = replay.run()
    assert not np.isnan(schedule.end_s).any()
    assert (replay.overflow_jobs > 0) == (replay.overflow_usd > 0) == goes
    assert schedule.busy_gpus.max() <= 16


@pytest.mark.parametrize(("usd_per_hour", "waits"), [(0.02, True), (20.0, False)])
def test_no_job_is_smaller_than_spot_is_worth(usd_per_hour: float, waits: bool) -> None:
    work = _jobs((0, 4 * HOUR_S, 8), (0, 4 * HOUR_S, 8))
    table = GangTable.of([[(4, 0.9), (8, 1.0)]] * 2, [8, 8])
    replay = OverflowReplay(
        work, work.window(START_AT, 1)[1], table, (8,), PricedPolicy(), ReplaySettings()
    )
    replay.spot = _steady(usd_per_hour)
    assert (replay.run().first_run_s > 0).any() == waits


@pytest.mark.parametrize("protected_s", [60.0, 900.0])
def test_a_gang_is_left_as_it_is_for_as_long_as_the_policy_says(protected_s: float) -> None:
    work = _jobs((0, 40 * HOUR_S, 8), (30, HOUR_S, 8))
    table = GangTable.of([[(8, 1.0)]] * 2, [8, 8])
    policy = PricedPolicy(protected_s=protected_s)
    replay = FleetReplay(
        work, work.window(START_AT, 1)[1], table, (8,), policy, ReplaySettings(knows_work=True)
    )
    assert replay.run().first_run_s.tolist() == [0.0, protected_s]
