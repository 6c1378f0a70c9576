"""What strategies make of launches that wait: nothing until they run, and safe from then on."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from costopt.domain.fleet import Node, NodeState
from costopt.domain.market import CapacityType, Offer
from costopt.domain.view import Target, View
from costopt.strategies import build
from costopt.strategies.gang_options import gang_options, uninterruptible_options
from costopt.strategies.shield import ShieldedStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, rules, task
from tests.support.market_fixtures import after
from tests.support.strategy_fixtures import TICK_S, Wants, build_view, nodes_in, offer, only

FLEX = SPOT_A.with_capacity_type(CapacityType.FLEX_START)
WAIT_S = 2 * HOUR_S
NEEDED_S = 150 + 4 * HOUR_S * (1 + 10 / 1800) + 10
"""Start, 4 h of work with their saves, and the last save."""
SAFE_OFFER = offer(SAFE, 8.0)


def _flex(wait_s: float = WAIT_S, until_at: datetime | None = None) -> Offer:
    return replace(offer(FLEX, 2.0), wait_s=wait_s, until_at=until_at)


def _waiting(since_s: float = 0.0) -> tuple[Node, ...]:
    (node,) = nodes_in(FLEX)
    return (replace(node, state=NodeState.WAITING, launched_at=after(since_s)),)


def _with_waiting(view: View, since_s: float) -> View:
    return replace(view, jobs=(replace(view.jobs[0], waiting=_waiting(since_s)),))


def test_no_deadline_rests_on_it_before_it_runs() -> None:
    view = build_view(task(deadline_s=40 * HOUR_S), [_flex(), SAFE_OFFER])
    assert [
        option.pool for option in uninterruptible_options(gang_options(view, view.jobs[0]))
    ] == [SAFE]
    waits = _with_waiting(view, -600)
    assert [
        option.pool for option in uninterruptible_options(gang_options(waits, waits.jobs[0]))
    ] == [SAFE]
    decision = only(ShieldedStrategy(Wants(Target(FLEX, 1))).decide(view))
    assert decision.slack_s == pytest.approx(40 * HOUR_S - NEEDED_S)


def test_one_that_runs_until_the_deadline_is_as_safe_as_on_demand() -> None:
    view = build_view(task(deadline_s=NEEDED_S - 100), [_flex(), SAFE_OFFER], nodes=nodes_in(FLEX))
    decision = only(ShieldedStrategy(Wants(Target(FLEX, 1))).decide(view))
    assert (decision.targets, decision.rule) == ((Target(FLEX, 1),), None)
    ends = _flex(until_at=after(NEEDED_S - 200))
    short = build_view(task(deadline_s=NEEDED_S - 100), [ends, SAFE_OFFER], nodes=nodes_in(FLEX))
    assert only(ShieldedStrategy(Wants(Target(FLEX, 1))).decide(short)).targets == (
        Target(SAFE, 1),
    )


def test_one_that_runs_is_left_only_for_what_is_sure_to_come() -> None:
    """To come back to it one would have to wait again."""
    alone = build_view(task(deadline_s=40 * HOUR_S), [_flex()], nodes=nodes_in(FLEX))
    assert only(ShieldedStrategy(Wants()).decide(alone)).targets == (Target(FLEX, 1),)
    beside = build_view(task(deadline_s=40 * HOUR_S), [_flex(), SAFE_OFFER], nodes=nodes_in(FLEX))
    assert only(ShieldedStrategy(Wants()).decide(beside)).targets == ()


@pytest.mark.parametrize("waited_s", [0.0, WAIT_S - 60])
@pytest.mark.parametrize(("spare_s", "stands"), [(TICK_S + 1, True), (TICK_S - 1, False)])
def test_on_demand_takes_over_at_the_latest_safe_moment_also_while_it_waits(
    spare_s: float, stands: bool, waited_s: float
) -> None:
    view = build_view(task(deadline_s=NEEDED_S + spare_s), [_flex(), SAFE_OFFER])
    waits = _with_waiting(view, -waited_s)
    decision = only(ShieldedStrategy(Wants(Target(FLEX, 1))).decide(waits))
    expected = (Target(FLEX, 1),) if stands else (Target(SAFE, 1),)
    assert decision.targets == expected


def test_a_tick_of_waiting_adds_nothing_even_where_a_tick_on_spot_would() -> None:
    """On a grid with free saves; the wait could be over at once."""
    job = replace(task(deadline_s=4 * HOUR_S + 10, save_s=0), startup_s=0)
    job = replace(job, checkpoint=replace(job.checkpoint, restore_s=0))
    wants = ShieldedStrategy(Wants(Target(FLEX, 1)))
    view = build_view(job, [_flex(wait_s=1.0), SAFE_OFFER], uninterruptible_s=TICK_S)
    assert only(wants.decide(view)).rule == "shield"


def test_while_a_launch_waits_no_other_is_weighed_against_it() -> None:
    """Not even in a pool that is a little cheaper: there it would wait from the beginning."""
    elsewhere = replace(FLEX, zone="us-east-1b")
    other = replace(offer(elsewhere, 1.99), wait_s=WAIT_S)
    view = build_view(task(deadline_s=12 * HOUR_S), [_flex(), other, SAFE_OFFER])
    strategy = build(rules("adaptive").strategy)
    assert only(strategy.decide(view)).targets == (Target(elsewhere, 1),)
    waits = _with_waiting(replace(view, now=view.now + timedelta(seconds=1)), 0.0)
    assert only(strategy.decide(waits)).targets == (Target(FLEX, 1),)
    assert {option.pool for option in gang_options(waits, waits.jobs[0])} == {FLEX, SAFE}
    rests = replace(waits, offers=(replace(_flex(), nodes_available=0), SAFE_OFFER))
    assert only(strategy.decide(rests)).targets == (Target(FLEX, 1),), "its place is kept"
    runs = replace(waits, jobs=(replace(waits.jobs[0], nodes=nodes_in(elsewhere)),))
    assert {option.pool for option in gang_options(runs, runs.jobs[0])} == {FLEX, SAFE, elsewhere}


def test_what_is_behind_a_launch_is_not_waited_for_again() -> None:
    """With an hour and a half to spare two hours cannot be waited for, ten minutes can."""
    view = build_view(task(deadline_s=NEEDED_S + 1.5 * HOUR_S), [_flex(), SAFE_OFFER])
    strategy = build(rules("adaptive").strategy)
    assert only(strategy.decide(view)).targets == (Target(SAFE, 1),)
    waits = _with_waiting(view, 600 - WAIT_S)
    assert only(strategy.decide(waits)).targets == (Target(FLEX, 1),)


def test_without_uninterruptible_capacity_it_is_waited_for_where_there_is_no_spot() -> None:
    strategy = build(rules("adaptive").strategy)
    for offers, pool in [
        ([_flex()], FLEX),
        ([_flex(), offer(SPOT_A, 9.0)], SPOT_A),
        ([_flex(), offer(SPOT_A, 9.0, 0)], FLEX),
    ]:
        (target,) = only(strategy.decide(build_view(task(), offers))).targets
        assert target.pool == pool
