"""The gangs that a job could run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.job import Phase, Resources
from costopt.domain.policy import Objective
from costopt.domain.scaling import FAST_LINKS
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.strategies.gang_options import gang_options, spot_options, uninterruptible_options
from tests.support.engine_fixtures import BIG_SAFE, HOUR_S, SAFE, SPOT_A, SPOT_B, task
from tests.support.strategy_fixtures import build_view, nodes_in, offer


def test_every_size_of_every_offer_that_job_and_phase_allow() -> None:
    job = replace(task(nodes=(1, 4)), phases=(Phase("a", 0.5, 2, 3), Phase("b", 0.5, 1, 4)))
    view = build_view(job, [offer(SPOT_A, 2.0), offer(SAFE, 8.0)])
    found = [(o.pool, o.nodes) for o in gang_options(view, view.jobs[0])]
    assert found == [(SPOT_A, 2), (SPOT_A, 3), (SAFE, 2), (SAFE, 3)]
    later = build_view(job, [offer(SPOT_A, 2.0)], done=2 * HOUR_S)
    assert [o.nodes for o in gang_options(later, later.jobs[0])] == [1, 2, 3, 4]


def test_an_unknown_price_machine_or_speed_is_not_an_option() -> None:
    other = replace(SPOT_B, instance_type="mystery")
    view = build_view(task(), [offer(SPOT_A, None), offer(other, 1.0)])
    assert gang_options(view, view.jobs[0]) == ()
    unknown = replace(task(), throughput=Throughput((ThroughputSample("H100", 1, 1.0),)))
    view = build_view(unknown, [offer(SPOT_A, 1.0)])
    assert gang_options(view, view.jobs[0]) == ()
    wrong_gpu = replace(task(), resources=Resources(gpu_models=("H100",)))
    view = build_view(wrong_gpu, [offer(SPOT_A, 1.0)])
    assert gang_options(view, view.jobs[0]) == ()


@pytest.mark.parametrize(
    ("available", "have", "free"),
    [(2, 0, True), (1, 0, False), (1, 1, True), (0, 1, False), (0, 2, True), (None, 0, True)],
)
def test_room_is_needed_only_for_the_nodes_that_are_missing(
    available: int | None, have: int, free: bool
) -> None:
    view = build_view(
        task(nodes=(2, 2)), [offer(SPOT_A, 2.0, available)], nodes=nodes_in(SPOT_A, have)
    )
    (option,) = gang_options(view, view.jobs[0])
    assert option.free is free
    assert option.running is (have == 2)
    assert spot_options([option]) == ([option] if free else [])


def test_the_cheapest_work_comes_first_and_not_the_cheapest_hour() -> None:
    view = build_view(task(), [offer(SAFE, 8.0), offer(BIG_SAFE, 20.0)])
    assert [o.pool for o in uninterruptible_options(gang_options(view, view.jobs[0]))] == [
        BIG_SAFE,
        SAFE,
    ]


def test_energy_and_carbon_count_as_the_objective_says() -> None:
    """A gang of 4 V100s in one node draws 1 kW as one of them does."""
    expensive_power = Objective(usd=1.0, usd_per_kwh=100.0)
    view = build_view(task(), [offer(SAFE, 8.0), offer(BIG_SAFE, 40.0)], objective=expensive_power)
    assert [o.pool for o in uninterruptible_options(gang_options(view, view.jobs[0]))] == [
        BIG_SAFE,
        SAFE,
    ]
    view = build_view(task(), [offer(SAFE, 8.0), offer(BIG_SAFE, 40.0)])
    assert [o.pool for o in uninterruptible_options(gang_options(view, view.jobs[0]))] == [
        SAFE,
        BIG_SAFE,
    ]


def test_an_estimated_speed_counts_at_its_lower_end_until_it_is_measured() -> None:
    job = task(nodes=(2, 2))
    view = build_view(job, [offer(SPOT_A, 2.0)])
    (guessed,) = gang_options(view, view.jobs[0])
    measured = build_view(job, [offer(SPOT_A, 2.0)], speed_factor=0.5)
    (known,) = gang_options(measured, measured.jobs[0])
    assert guessed.units_per_s == pytest.approx(2.0 * FAST_LINKS.low / FAST_LINKS.value)
    assert known.units_per_s == pytest.approx(2.0 * 0.5)


def test_the_work_left_is_reported_phase_by_phase() -> None:
    phases = (Phase("a", 0.25, 1, 1), Phase("b", 0.5, 3, 4), Phase("c", 0.25, 2, 2))
    points = tuple(ThroughputSample("V100", n, float(n)) for n in range(1, 5))
    job = replace(task(nodes=(1, 4)), phases=phases, throughput=Throughput(points))
    view = build_view(job, [offer(SAFE, 8.0)])
    (first,) = gang_options(view, view.jobs[0])
    assert list(first.work_left(0.0)) == [(1, 3600.0), (3, 2400.0), (2, 1800.0)]
    assert list(first.work_left(3.5 * HOUR_S)) == [(2, 900.0)]
    assert list(first.work_left(4 * HOUR_S)) == []
    wide = build_view(job, [offer(SAFE, 8.0)], done=2 * HOUR_S)
    assert [next(iter(o.work_left(2 * HOUR_S))) for o in gang_options(wide, wide.jobs[0])] == [
        (3, 1200.0),
        (4, 900.0),
    ]
