"""When a gang stands still, by what is known of its speed and of its job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.cached_data import CachedData
from costopt.domain.gpu_health import HealthRules
from costopt.domain.job import Phase
from costopt.domain.market import Pool
from costopt.domain.progress import GangState, Progress
from costopt.engine.gang_watch import GangWatch
from costopt.engine.phase_limits import pause_limit_s, start_limit_s
from costopt.ledger.job_record import JobRecord
from tests.support.engine_fixtures import P3_BIG, SPOT_A, task

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RULES = HealthRules()
IDLE_S = RULES.idle_after_s
JOB = task()


class Watched:
    """A gang that trains since it was formed, ten minutes before the first observation."""

    def __init__(self, planned_units_per_s: float | None = None) -> None:
        self.watch = GangWatch(1, GangState.TRAINING)
        self.planned = planned_units_per_s
        self.now = NOW

    def observe(self, after_s: float, done_units: float, resumed_units: float | None) -> None:
        self.now += timedelta(seconds=after_s)
        progress = Progress(done_units, state=GangState.TRAINING, resumed_units=resumed_units)
        formed_at = NOW - timedelta(minutes=10)
        self.watch.observe(progress, self.planned, (), {}, RULES, IDLE_S, formed_at, self.now)


@pytest.mark.parametrize("planned", [None, 1.0])
def test_a_gang_that_hangs_after_steps_before_the_first_observation_stalls(
    planned: float | None,
) -> None:
    gang = Watched(planned)
    gang.observe(0.0, 101.0, 100.0)
    gang.observe(IDLE_S - 1, 101.0, 100.0)
    assert gang.watch.is_stalled is None
    gang.observe(2.0, 101.0, 100.0)
    assert gang.watch.is_stalled


def test_steps_may_be_as_far_apart_as_the_first_was_from_the_start() -> None:
    gang = Watched()
    gang.observe(50 * 60.0, 101.0, 100.0)
    gang.observe(2.9 * 3600.0, 101.0, 100.0)
    assert gang.watch.is_stalled is None
    gang.observe(0.2 * 3600.0, 101.0, 100.0)
    assert gang.watch.is_stalled


@pytest.mark.parametrize("resumed_units", [None, 100.0])
def test_a_gang_that_never_reported_a_step_is_unknown(resumed_units: float | None) -> None:
    gang = Watched()
    for _ in range(50):
        gang.observe(3600.0, 100.0, resumed_units)
    assert gang.watch.is_stalled is None


def test_without_a_planned_speed_any_step_is_progress() -> None:
    gang = Watched()
    gang.observe(0.0, 1.0, 0.0)
    for number in range(2, 20):
        gang.observe(0.9 * IDLE_S, float(number), 0.0)
        assert gang.watch.is_stalled is False


def test_a_start_is_expected_to_take_the_longest_of_what_is_known() -> None:
    record = JobRecord("job")
    quick = replace(JOB, startup_s=60.0, checkpoint=replace(JOB.checkpoint, restore_s=60.0))
    assert start_limit_s(quick, record, None, IDLE_S, None) == 2 * IDLE_S, "the floor"
    slow = replace(quick, startup_s=10_000.0)
    assert start_limit_s(slow, record, None, IDLE_S, 0.01) == 2 * (10_060.0 + 100.0)
    record.gang_pool, record.longest_start_s = SPOT_A, {SPOT_A: 9_000.0}
    assert start_limit_s(quick, record, None, IDLE_S, None) == 2 * 9_000.0
    record.longest_start_s = {Pool.parse("aws/r/z/t/spot"): 9_000.0}
    record.members, record.save_gbps = ("a", "b"), 1.0
    big = replace(quick, checkpoint=replace(quick.checkpoint, size_gib=2_000.0))
    limit_s = start_limit_s(big, record, None, IDLE_S, None)
    assert limit_s == pytest.approx(2 * (60.0 + 2_000.0 * 8.589934592 / 2), rel=1e-3)


def test_a_cache_takes_longer_on_a_slow_network() -> None:
    cached = replace(JOB, cache=(CachedData("s3://b/w", "/w", 2_000.0),))
    machine = replace(P3_BIG, network_gbps=1.0)
    slow_s = start_limit_s(cached, JobRecord("job"), machine, IDLE_S, None)
    assert slow_s > start_limit_s(cached, JobRecord("job"), None, IDLE_S, None)
    assert slow_s > 2 * 2_000.0 * 8


def test_declared_evaluations_saves_and_steps_are_not_a_stall() -> None:
    record = JobRecord("job")
    assert pause_limit_s(JOB, record, IDLE_S, 1.0) == IDLE_S
    evaluating = (Phase("all", 1.0, 1, 1, evaluate_every=10.0, evaluation_s=3000.0),)
    assert pause_limit_s(replace(JOB, phases=evaluating), record, IDLE_S, None) >= 9000.0
    saving = replace(JOB, checkpoint=replace(JOB.checkpoint, save_s=10.0, persist_s=2000.0))
    assert pause_limit_s(saving, record, IDLE_S, None) == 6000.0
    assert pause_limit_s(JOB, record, IDLE_S, 1 / 3600.0) >= 3 * 3600.0
