"""How long a job without a deadline waits for cheaper capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.job import Job
from costopt.domain.view import Target
from costopt.strategies.patience import with_deadlines
from costopt.strategies.shield import ShieldedStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, task
from tests.support.strategy_fixtures import Wants, build_view, offer, only

SAFE_OFFER, SPOT_OFFER = offer(SAFE, 8.0), offer(SPOT_A, 2.0)


def _open_ended(usd_per_hour: float) -> Job:
    return replace(task(work_s=4 * HOUR_S), deadline_at=None, usd_per_hour_waited=usd_per_hour)


def _patience_h(usd_per_hour: float) -> float:
    job = (
        with_deadlines(build_view(_open_ended(usd_per_hour), [SAFE_OFFER, SPOT_OFFER])).jobs[0].job
    )
    assert job.deadline_at is not None
    return (job.deadline_at - job.start_at).total_seconds() / 3600


def test_a_job_waits_until_waiting_has_cost_what_safe_capacity_costs() -> None:
    """A little over 4 h at $8 an hour are $32: 16 h at $2 an hour waited, 4 h at $8."""
    assert _patience_h(2.0) == pytest.approx(4 + 16, rel=0.05)
    assert _patience_h(8.0) == pytest.approx(4 + 4, rel=0.05)


def test_a_deadline_stays_and_without_safe_capacity_there_is_no_hurry() -> None:
    view = build_view(task(), [SAFE_OFFER])
    assert with_deadlines(view) is view
    job = with_deadlines(build_view(_open_ended(1.0), [SPOT_OFFER])).jobs[0].job
    assert job.deadline_at == job.until_at


@pytest.mark.parametrize(("now_h", "waits"), [(1.0, True), (30.0, False)])
def test_it_goes_to_safe_capacity_when_its_patience_ends(now_h: float, waits: bool) -> None:
    view = build_view(_open_ended(2.0), [SAFE_OFFER], now_s=now_h * HOUR_S)
    decision = only(ShieldedStrategy(Wants()).decide(view))
    assert decision.targets == (() if waits else (Target(SAFE, 1),))
