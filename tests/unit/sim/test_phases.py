"""A replayed gang does each phase at its own speed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import BadRequestError
from costopt.domain.job import Job, Phase
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt_sim.training import SimulatedGang, speeds_of
from tests.support.optimize_fixtures import job, machine

AT = datetime(2026, 3, 2, tzinfo=UTC)
A100, H100 = machine("A100-SXM4-40GB"), machine("H100")


def points(**by_model: float) -> Throughput:
    return Throughput(tuple(ThroughputSample(model, 8, speed) for model, speed in by_model.items()))


def job_of(*phases: Phase) -> Job:
    return replace(job(1.0), phases=phases)


def gang(*paces: tuple[float, float], base_units: float = 0.0) -> SimulatedGang:
    """100 s of work at 10 units/s, saved every 20 s for 5 s."""
    return SimulatedGang(1, ("n",), AT, base_units, 1000.0, 10.0, 20.0, 5.0, paces=paces)


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def test_a_slow_phase_takes_longer() -> None:
    one = gang((200.0, 0.5))
    assert one.work_s == pytest.approx(40 + 80)
    assert one.training_ends_at == after(120 + 5 * 5)
    assert one.done_at(after(20)) == pytest.approx(100)
    assert one.done_at(after(25 + 20 + 5 + 20)) == pytest.approx(200 + 200)
    assert one.saved_at(after(25 + 25 + 25)) == pytest.approx(400)
    assert one.done_at(one.training_ends_at) == 1000


def test_a_gang_may_begin_within_a_phase() -> None:
    one = gang((200.0, 0.5), (600.0, 2.0), base_units=100.0)
    assert one.work_s == pytest.approx(20 + 20 + 40)
    assert one.done_at(after(25 + 10)) == pytest.approx(200 + 200)


def test_the_speed_is_that_of_the_phase() -> None:
    one = gang((200.0, 0.5), (600.0, 2.0))
    assert [one.speed_at(units) for units in (0, 199, 200, 599, 600, 1000)] == [
        5,
        5,
        20,
        20,
        10,
        10,
    ]


def test_without_phases_of_their_own_nothing_changes() -> None:
    assert speeds_of(job_of(Phase("a", 0.5, 1, 1), Phase("b", 0.5, 1, 1)), [A100], 0.0).paces == ()


def test_speeds_and_evaluations_come_from_the_phases() -> None:
    one = job_of(
        Phase("a", 0.25, 1, 1, throughput=points(A100=0.5)),
        Phase("b", 0.75, 1, 1, evaluate_every=300.0, evaluation_s=100.0),
    )
    found = speeds_of(one, [A100], 0.0)
    assert found.units_per_s == pytest.approx(0.75)
    ((until_units, share),) = found.paces
    assert until_units == 900.0
    assert share == pytest.approx(0.5 / 0.75)


def test_an_unmeasured_phase_is_done_as_the_present_one() -> None:
    one = job_of(
        Phase("a", 0.5, 1, 1, throughput=points(H100=3.0)),
        Phase("b", 0.5, 1, 1, throughput=points(A100=1.0)),
    )
    assert speeds_of(one, [H100], 0.0).units_per_s == pytest.approx(3.0)
    with pytest.raises(BadRequestError, match="no throughput is known for H100"):
        speeds_of(one, [H100], 1800.0)
