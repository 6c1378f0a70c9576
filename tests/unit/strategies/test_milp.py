"""Plan ahead, follow the plan, plan again when its ground moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costopt.optimize.planner
from costopt.backtesting.replay import replay
from costopt.domain.account import Account, AccountGuards
from costopt.domain.errors import SolverError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Offer, Pool
from costopt.domain.plan import Plan
from costopt.domain.view import Target, View
from costopt.optimize.colgen.warm_start import WarmStart
from costopt.optimize.request import PlanRequest
from costopt.strategies.milp import MilpStrategy
from tests.support.cant_be_late import OneMachine, OnePower, job, market
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Scene,
    SomeHazard,
    always,
    rules,
    task,
)
from tests.support.market_fixtures import after
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

HAZARDS = SomeHazard()


def _offer(pool: Pool, usd_per_hour: float, available: int = 9) -> Offer:
    known = HAZARDS.hazard_per_hour(pool) or Estimate.exact(0.0, Basis.LISTED, "test")
    return replace(offer(pool, usd_per_hour, available), hazard_per_hour=known)


OFFERS = [_offer(SPOT_A, 2.0), _offer(SPOT_B, 4.0), _offer(SAFE, 8.0)]
JOB = task(2 * HOUR_S, 12 * HOUR_S)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[PlanRequest]:
    """Every request that the planner was made."""
    asked: list[PlanRequest] = []
    real = costopt.optimize.planner.plan

    def watched(
        request: PlanRequest, *, time_limit_s: float, gap: float, explain: bool, warm: WarmStart
    ) -> Plan:
        asked.append(request)
        return real(request, time_limit_s=time_limit_s, gap=gap, explain=explain, warm=warm)

    monkeypatch.setattr(costopt.optimize.planner, "plan", watched)
    return asked


def _at(view: View, seconds: float) -> View:
    return replace(view, now=after(seconds))


def test_it_follows_its_plan() -> None:
    decision = only(MilpStrategy().decide(build_view(JOB, OFFERS)))
    assert decision.targets == (Target(SPOT_A, 1),)
    assert "planned at" in decision.reason


def test_it_plans_within_the_account_s_guards() -> None:
    """Two jobs, of which the account lets one run at a time."""
    views = [build_view(task(2 * HOUR_S, 6 * HOUR_S, name=name), OFFERS) for name in ("a", "b")]
    view = replace(views[0], jobs=tuple(job_view for each in views for job_view in each.jobs))
    guarded = replace(view, account=Account(guards=AccountGuards(max_nodes=1)))
    nodes = [
        sum(
            target.nodes
            for each in MilpStrategy().decide(seen).decisions
            for target in each.targets
        )
        for seen in (view, guarded)
    ]
    assert nodes == [2, 1]


def test_a_plan_stands_until_it_is_old(plans: list[PlanRequest]) -> None:
    strategy = MilpStrategy(replan_s=1800)
    view = build_view(JOB, OFFERS, nodes=nodes_in(SPOT_A))
    for seconds in range(0, 1800, 300):
        strategy.decide(_at(view, seconds))
    assert len(plans) == 1
    strategy.decide(_at(view, 1800))
    assert len(plans) == 2


def test_a_plan_is_made_again_when_its_inputs_change(plans: list[PlanRequest]) -> None:
    running = {"nodes": nodes_in(SPOT_A)}
    grounds = [
        build_view(JOB, OFFERS),
        build_view(JOB, OFFERS, **running),  # type: ignore[arg-type]
        build_view(JOB, OFFERS[1:], **running),  # type: ignore[arg-type]
        build_view(JOB, [_offer(SPOT_A, 2.0, 0), *OFFERS[1:]], **running),  # type: ignore[arg-type]
        build_view(JOB, [_offer(SPOT_A, 2.5), *OFFERS[1:]], **running),  # type: ignore[arg-type]
    ]
    strategy = MilpStrategy()
    for number, view in enumerate(grounds, 1):
        for seconds in (0, 60, 120):
            strategy.decide(_at(view, seconds))
        assert len(plans) == number


def test_where_no_plan_is_possible_it_says_why() -> None:
    decision = only(MilpStrategy().decide(build_view(JOB, [])))
    assert decision.targets == ()
    assert decision.reason.startswith("no plan, ")
    assert "there are no offers" in decision.reason


def test_without_a_plan_what_runs_is_kept() -> None:
    decision = only(MilpStrategy().decide(build_view(JOB, [], nodes=nodes_in(SPOT_A))))
    assert decision.targets == (Target(SPOT_A, 1),)


def test_the_nodes_of_a_last_save_are_kept() -> None:
    view = build_view(JOB, OFFERS, done=JOB.work.amount, saved=0.0, nodes=nodes_in(SPOT_A))
    assert only(MilpStrategy().decide(view)).targets == (Target(SPOT_A, 1),)


def test_a_command_that_lost_its_nodes_after_its_last_save_is_ended_at_once() -> None:
    view = build_view(JOB, OFFERS, done=JOB.work.amount)
    assert only(MilpStrategy().decide(view)).targets == (Target(SPOT_A, 1),)
    gone = build_view(JOB, [_offer(SPOT_A, 2.0, 0), *OFFERS[1:]], done=JOB.work.amount)
    assert only(MilpStrategy().decide(gone)).targets != ()


def test_a_failing_optimizer_does_not_stop_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SolverError("no")

    monkeypatch.setattr("costopt.optimize.planner.plan", fail)
    decision = only(MilpStrategy().decide(build_view(JOB, OFFERS, nodes=nodes_in(SPOT_A))))
    assert decision.targets == (Target(SPOT_A, 1),)


def test_a_small_change_of_a_price_triggers_no_plan(plans: list[PlanRequest]) -> None:
    strategy = MilpStrategy()
    for price, expected in ((2.0, 1), (2.001, 1), (2.2, 2)):
        view = build_view(JOB, [_offer(SPOT_A, price), *OFFERS[1:]], nodes=nodes_in(SPOT_A))
        strategy.decide(view)
        assert len(plans) == expected, price


@settings(max_examples=25, deadline=None)
@given(
    runs=st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=12),
    slack_h=st.sampled_from([0.6, 2.0, 4.0]),
)
def test_it_is_in_time_behind_the_shield(runs: list[tuple[bool, int]], slack_h: float) -> None:
    trace = [int(up) for up, length in runs for _ in range(length)]
    deadline_h = 3.0 + 0.1 + slack_h
    up = (trace * 60)[: int(3.2 * deadline_h * 6)] or [0]
    up += [0] * (int(3.2 * deadline_h * 6) - len(up))
    run = replay(
        job(deadline_h, 0.1, 3.0),
        rules("milp"),
        market(up, 600.0),
        machines=OneMachine(),
        powers=OnePower(),
        hazards=SomeHazard(),
    )
    assert run.summary.on_time is True


def test_it_keeps_what_runs_while_the_provider_is_silent() -> None:
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[task(2 * HOUR_S, 6 * HOUR_S)],
        policy=rules("milp"),
        hazards=SomeHazard(),
        tick_s=300,
    )
    scene.go(1800)
    scene.cloud.silent = {"offers"}
    scene.go(1800)
    scene.cloud.silent = set()
    assert scene.pools() == [SPOT_A]
    scene.finish()
    assert len(scene.cloud.requests) == 1
