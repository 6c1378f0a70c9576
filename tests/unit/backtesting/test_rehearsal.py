"""A job on a recorded market, from start to end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.backtesting.replay import ReplayResult, check_coverage, replay
from costopt.controller.site import connect_provider
from costopt.domain.errors import MarketError, ProviderError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.policy import Limits, Policy
from costopt.engine.loop import VirtualClock
from costopt.ledger.summary import JobState
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    Follow,
    Machines,
    Powers,
    rules,
    task,
)
from tests.support.errors import has_code
from tests.support.market_fixtures import T0, market, pool_history


def _market(hours: float = 40, tick_s: float | None = None) -> MarketHistory:
    ends_s = hours * HOUR_S
    return market(
        pool_history(SPOT_A, [(0, 1, 2.0), (2 * HOUR_S, 0, 2.0), (4 * HOUR_S, 1, 2.0)], ends_s),
        pool_history(SAFE, [(0, 9, 8.0)], ends_s),
        tick_s=tick_s,
    )


def _run(job: Job, policy: Policy | None = None, **options: object) -> ReplayResult:
    return replay(
        job,
        policy or rules("greedy_spot"),
        options.pop("history", _market()),  # type: ignore[arg-type]
        machines=Machines(),
        powers=Powers(),
        hazards=NoHazard(),
        **options,  # type: ignore[arg-type]
    )


def test_the_same_rehearsal_twice_is_the_same() -> None:
    first, second = _run(task(deadline_s=10 * HOUR_S)), _run(task(deadline_s=10 * HOUR_S))
    assert first == second
    assert first.strategy == "greedy_spot"
    assert first.summary.on_time is True
    assert first.events[0].seq == 1


def test_jobs_beside_each_other_share_what_there_is() -> None:
    """The only spot node is for one of them at a time."""
    job = task(deadline_s=30 * HOUR_S)
    alone = _run(job)
    both = _run(job, beside=(replace(job, name="other"),))
    (second,) = both.beside
    assert alone.beside == ()
    assert {each.event.job for each in both.events} == {job.name}
    assert {each.event.job for each in second.events} == {"other"}
    finished_at = [each.summary.finished_at for each in (alone, both, second)]
    assert all(finished_at)
    assert sorted(map(str, finished_at[1:]))[1] > str(finished_at[0])


@pytest.mark.parametrize(
    ("grid_s", "asked_s", "expected_s"), [(None, None, 300), (600, None, 600), (600, 60, 60)]
)
def test_the_tick_is_the_one_asked_for_else_the_record_s_grid(
    grid_s: float | None, asked_s: float | None, expected_s: float
) -> None:
    run = _run(task(deadline_s=10 * HOUR_S), history=_market(tick_s=grid_s), tick_s=asked_s)
    ran_s = (run.summary.now - T0).total_seconds()
    assert run.ticks == round(ran_s / expected_s) + 1


@pytest.mark.parametrize("shift_h", [-1.0, 31.0])
def test_a_record_that_does_not_cover_the_job_is_refused(shift_h: float) -> None:
    job = task(deadline_s=10 * HOUR_S)
    by = timedelta(hours=shift_h)
    moved = replace(job, start_at=job.start_at + by, deadline_at=job.until_at + by)
    with pytest.raises(MarketError, check=has_code("outside_market")) as caught:
        check_coverage(moved, _market())
    assert caught.value.hint
    with pytest.raises(MarketError):
        _run(moved)


def test_a_late_job_is_followed_beyond_its_deadline() -> None:
    run = _run(task(deadline_s=2 * HOUR_S))
    assert run.summary.state is JobState.FINISHED
    assert run.summary.on_time is False
    assert run.summary.margin_s is not None
    assert run.summary.margin_s < -2 * HOUR_S


def test_a_job_that_is_never_done_ends_with_the_record() -> None:
    run = _run(task(deadline_s=10 * HOUR_S), strategy=Follow())
    assert run.summary.state is JobState.STOPPED
    assert run.summary.on_time is False


def test_a_job_that_a_guard_stopped_is_reported_as_such() -> None:
    run = _run(task(deadline_s=10 * HOUR_S), rules("greedy_spot", limits=Limits(max_usd=1.0)))
    assert run.summary.state is JobState.STOPPED
    assert run.summary.finished_at is None
    assert run.summary.nodes_alive == 0


def test_an_adapter_that_is_not_installed_names_those_that_are() -> None:
    with pytest.raises(ProviderError, match="'azure'") as caught:
        connect_provider("azure", VirtualClock(T0), {})
    assert "aws, gcp, kubernetes, sim, slurm" in caught.value.message
    assert "pip install" not in (caught.value.hint or "")
