"""What was saved against on-demand counts at the speed that was measured, once there is one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from costopt.domain.events import ProgressReported
from costopt.domain.job import Job
from costopt.ledger.job_account import JobAccount
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, task

STARTUP_S = 100


class TrueSpeed:
    """A runtime under which jobs run so many times as fast as their files declare."""

    def __init__(self, inner: Any, factor: float) -> None:
        self._inner = inner
        self._factor = factor

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return lambda job, *rest: method(self._faster(job), *rest)

    def _faster(self, job: Job) -> Job:
        points = job.throughput.points
        faster = tuple(replace(p, units_per_s=p.units_per_s * self._factor) for p in points)
        return replace(job, throughput=replace(job.throughput, points=faster))


def _scene(factor: float) -> Scene:
    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 9, 8.0), jobs=[task()])
    scene.cloud.runtime = TrueSpeed(scene.cloud.runtime, factor)
    scene.restart()
    return scene


def _on_demand_usd(factor: float) -> float:
    """4 h of declared work at 8 $/h, with a save of 10 s in each half hour, and the start-up."""
    busy_s = (4 * HOUR_S * (1 + 10 / 1800) + 10) / factor
    return 8.0 * (STARTUP_S + busy_s) / 3600


@pytest.mark.parametrize("factor", [2.5, 1.0, 0.5])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_saved_counts_at_the_measured_speed(factor: float, restarts: bool) -> None:
    scene = _scene(factor)
    scene.go(0.5 * HOUR_S)
    if restarts:
        scene.restart()
    scene.finish()
    summary, due_usd = scene.summary(), _on_demand_usd(factor)
    assert summary.speed_ratio == pytest.approx(factor)
    assert summary.baseline_usd_micros == pytest.approx(due_usd * 1e6, rel=1e-4)
    assert summary.saved_usd_share == pytest.approx(1 - summary.usd / due_usd, rel=1e-4)
    busy_s = due_usd / 8.0 * 3600 - STARTUP_S
    assert summary.baseline_wh == pytest.approx((0.5 * STARTUP_S + busy_s) / 3.6, rel=1e-4)
    assert summary.baseline_gco2e == pytest.approx(0.4 * (summary.baseline_wh or 0))
    assert summary.baseline_basis == "at the measured speed"


def test_before_any_speed_is_measured_the_declared_one_counts_and_is_named() -> None:
    scene = _scene(2.5)
    scene.tick()
    summary = scene.summary()
    assert summary.speed_ratio is None
    assert summary.baseline_usd_micros == round(_on_demand_usd(1.0) * 1e6)
    assert summary.baseline_basis == "at the declared speed"


@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_an_implausible_speed_changes_nothing(factor: float) -> None:
    """Nodes report it, so that a job's own code may say anything."""
    scene = _scene(factor)
    scene.go(600)
    assert scene.summary().speed_ratio is None


def test_the_mean_is_over_the_work_and_work_done_twice_counts_as_it_was_done() -> None:
    scene = _scene(1.0)
    scene.tick()
    account: JobAccount = scene.engine.journal.accounts["job"]
    at = scene.clock.now()
    for done, ratio in ((1000.0, 2.0), (2000.0, None), (5000.0, 0.5)):
        account.apply(
            ProgressReported(at=at, job="job", done_units=done, saved_units=0.0, speed_ratio=ratio)
        )
    # 1,000 units at twice, 3,000 at half the declared speed: 6,500 in the time of 4,000.
    assert account.summary(at).speed_ratio == pytest.approx(4000 / 6500)


def test_a_speed_ratio_of_zero_measures_nothing() -> None:
    account = JobAccount("job")
    account.apply(
        ProgressReported(
            at=datetime(2026, 1, 1, tzinfo=UTC),
            job="job",
            done_units=1.0,
            saved_units=0.0,
            speed_ratio=0.0,
        )
    )
    assert account.work.speed_ratio is None
