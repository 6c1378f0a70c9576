"""The cheapest run of a job beside its real run: what it does, loses and pays."""

from __future__ import annotations

import pytest

from costopt.domain.market import Offer, Pool
from costopt.domain.view import Target, View
from costopt.strategies.adaptive.cheapest_run import CheapestRun
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, task
from tests.support.strategy_fixtures import TICK_S, build_view, nodes_in, offer

START_S = 150.0
HERE, THERE = (Target(SPOT_A, 1),), (Target(SAFE, 1),)


def _build_view(now_s: float, *offers: Offer, real: Pool | None = None) -> View:
    nodes = () if real is None else nodes_in(real)
    return build_view(task(HOUR_S, save_s=0.0), offers, now_s=now_s, nodes=nodes)


def _begun(view: View) -> CheapestRun:
    run = CheapestRun(view.jobs[0], view.now)
    run.follow(view, HERE)
    return run


def _advance(run: CheapestRun, view: View) -> None:
    run.advance(view, view.jobs[0])


SPOT, SAFE_OFFER = offer(SPOT_A, 12.0), offer(SAFE, 36.0)


def test_it_starts_works_and_pays_by_the_tick() -> None:
    run = _begun(_build_view(0, SPOT))
    _advance(run, _build_view(TICK_S, SPOT))
    assert run.units == pytest.approx(HOUR_S - (TICK_S - START_S))
    assert run.spent_usd == pytest.approx(1.0)
    _advance(run, _build_view(2 * TICK_S, SPOT))
    assert run.units == pytest.approx(HOUR_S - (2 * TICK_S - START_S))
    assert run.spent_usd == pytest.approx(2.0)


def test_its_gang_is_lost_with_the_capacity_of_its_pool() -> None:
    run = _begun(_build_view(0, SPOT))
    _advance(run, _build_view(TICK_S, offer(SPOT_A, 12.0, available=0)))
    assert not run.job_view.nodes
    assert run.units < HOUR_S, "it saved its work"
    _advance(run, _build_view(2 * TICK_S, SPOT))
    assert run.spent_usd == pytest.approx(1.0), "nothing runs"


def test_a_pool_in_which_the_real_run_has_its_nodes_has_capacity() -> None:
    run = _begun(_build_view(0, SPOT))
    _advance(run, _build_view(TICK_S, offer(SPOT_A, 12.0, available=0), real=SPOT_A))
    assert run.job_view.nodes


def test_a_gang_that_is_left_is_paid_for_another_tick() -> None:
    run = _begun(_build_view(0, SPOT, SAFE_OFFER))
    view = _build_view(TICK_S, SPOT, SAFE_OFFER)
    _advance(run, view)
    run.follow(view, THERE)
    assert run.spent_usd == pytest.approx(2.0)
    _advance(run, _build_view(2 * TICK_S, SPOT, SAFE_OFFER))
    assert run.spent_usd == pytest.approx(2.0 + 3.0)


def test_once_its_work_is_done_it_pays_nothing() -> None:
    run = _begun(_build_view(0, SPOT))
    _advance(run, _build_view(2 * HOUR_S, SPOT))
    assert run.units == 0
    spent_usd = run.spent_usd
    _advance(run, _build_view(3 * HOUR_S, SPOT))
    assert run.spent_usd == spent_usd
