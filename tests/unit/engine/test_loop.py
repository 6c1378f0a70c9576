"""Ticks come at multiples of the tick, and end when nothing is left to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from costopt.domain.events import JobFinished, JobSubmitted, NodeLaunched
from costopt.engine.engine import TickResult
from costopt.engine.loop import run_until_done
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, task
from tests.support.market_fixtures import T0, after


def _ticks(scene: Scene) -> list[datetime]:
    times: list[datetime] = []
    run_until_done(scene.engine, lambda result: times.append(result.now))
    return times


@pytest.mark.parametrize("tick_s", [60.0, 195.0, 192.3, 0.7 * 61])
def test_ticks_lie_on_multiples_of_the_tick(tick_s: float) -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(HOUR_S)], tick_s=tick_s)
    times = _ticks(scene)
    assert len(times) > 10
    for number, at in enumerate(times):
        assert abs((at - T0).total_seconds() - number * tick_s) < 1e-3


def test_a_late_tick_is_not_caught_up_with() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(HOUR_S)])
    times: list[float] = []

    def slow(result: TickResult) -> None:
        times.append((result.now - T0).total_seconds())
        if len(times) == 2:
            scene.clock.sleep(150)

    run_until_done(scene.engine, slow)
    assert times[:4] == [0, 60, 240, 300]


def test_two_jobs_run_side_by_side_and_the_loop_ends_with_the_last() -> None:
    jobs = [task(HOUR_S, name="short"), task(3 * HOUR_S, name="long", deadline_s=5 * HOUR_S)]
    scene = Scene(always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0), jobs=jobs)
    result = run_until_done(scene.engine)
    assert result.is_done
    assert result.nodes == ()
    for job in jobs:
        assert scene.summary(job.name).on_time is True
        assert len(scene.events(JobFinished, job.name)) == 1
    spot = [e for job in jobs for e in scene.events(NodeLaunched, job.name) if "spot" in e.pool]
    assert spot


def test_a_job_whose_start_lies_ahead_is_waited_for() -> None:
    later = replace(task(HOUR_S), start_at=after(2 * HOUR_S), deadline_at=after(9 * HOUR_S))
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[later])
    run_until_done(scene.engine)
    (submitted,) = scene.events(JobSubmitted)
    (launched,) = scene.events(NodeLaunched)
    assert submitted.at == launched.launched_at == after(2 * HOUR_S)


def test_a_finished_job_is_not_run_again() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task(HOUR_S)])
    run_until_done(scene.engine)
    scene.restart()
    assert scene.tick().is_done
    assert len(scene.events(NodeLaunched)) == 1
    assert len(scene.events(JobSubmitted)) == 1
