"""How long the rest takes on capacity that stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.job import Phase
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import Target
from costopt.strategies.gang_options import GangOption, gang_options
from costopt.strategies.remaining_time import (
    is_running,
    remaining_startup_s,
    seconds_left,
    seconds_to_finish,
)
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, task
from tests.support.strategy_fixtures import build_view, nodes_in, offer


def _option() -> GangOption:
    view = build_view(task(), [offer(SAFE, 8.0)])
    (option,) = gang_options(view, view.jobs[0])
    return option


def test_start_work_saves_and_the_last_save() -> None:
    job = task(save_s=18.0)
    work_s = 3600 * (1 + 18 / 1800) + 18
    assert seconds_to_finish(_option(), job, 3600) == pytest.approx(150 + work_s)
    assert seconds_to_finish(_option(), job, 3600, 0.0) == pytest.approx(work_s)
    assert seconds_to_finish(_option(), job, 3600, 40.0) == pytest.approx(40 + work_s)
    assert seconds_to_finish(_option(), job, 0, 40.0) == 0.0
    assert seconds_to_finish(_option(), job, 0) == 150, "the command has still to end somewhere"


def test_it_is_no_less_than_what_the_simulator_takes() -> None:
    from tests.support.engine_fixtures import Scene, always, rules

    for save_s in (0.0, 10.0, 120.0):
        job = task(save_s=save_s)
        scene = Scene(always(SAFE, 9, 8.0), jobs=[job], policy=rules("on_demand"))
        scene.finish()
        finished_at = scene.summary().finished_at
        assert finished_at is not None
        took_s = (finished_at - job.start_at).total_seconds()
        bound_s = seconds_to_finish(_option(), job, job.work.amount)
        assert took_s <= bound_s <= took_s + 50 + save_s


def test_a_phase_of_another_size_costs_another_start() -> None:
    phases = (Phase("narrow", 0.5, 1, 1), Phase("wide", 0.5, 2, 2))
    points = (ThroughputSample("V100", 1, 1.0), ThroughputSample("V100", 2, 2.0))
    job = replace(task(nodes=(1, 2), save_s=0), phases=phases, throughput=Throughput(points))
    view = build_view(job, [offer(SAFE, 8.0)])
    (option,) = gang_options(view, view.jobs[0])
    assert seconds_to_finish(option, job, 4 * HOUR_S) == 150 + 2 * HOUR_S + 150 + HOUR_S
    assert seconds_to_finish(option, job, 2 * HOUR_S) == 150 + HOUR_S


def test_seconds_left_hold_the_reserve_back() -> None:
    view = build_view(task(deadline_s=HOUR_S), [], now_s=600, reserve_s=100)
    assert seconds_left(view, view.jobs[0]) == 3600 - 600 - 100


def test_a_gang_runs_only_if_it_is_exactly_there() -> None:
    view = build_view(task(nodes=(1, 4)), [], nodes=nodes_in(SPOT_A, 2))
    (job_view,) = view.jobs
    assert is_running(job_view, [Target(SPOT_A, 2)])
    assert not is_running(job_view, [Target(SPOT_A, 1)])
    assert not is_running(job_view, [Target(SPOT_A, 2), Target(SAFE, 1)])
    assert not is_running(job_view, [])
    assert not is_running(replace(job_view, nodes=()), [])


@pytest.mark.parametrize(("starts_in_s", "left_s"), [(None, 0.0), (30.0, 30.0), (-30.0, 0.0)])
def test_the_rest_of_the_start(starts_in_s: float | None, left_s: float) -> None:
    view = build_view(task(), [], starts_in_s=starts_in_s)
    assert remaining_startup_s(view, view.jobs[0]) == left_s
