"""Rules put their limits over the policy's while their trigger holds."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.events import NodeLaunched
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits, Policy, Rule, RuleSignal
from costopt.engine.cohort import effective_limits
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    Scene,
    always,
    rules,
    task,
)
from tests.support.market_fixtures import T0

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
FEW = Limits(max_nodes=2)
NIGHT = Rule("night", RuleSignal.TIME_OF_DAY, 22, 6, FEW)
SPOT_ONLY = Limits(capacity_types=(CapacityType.SPOT,))


def _policy(*some: Rule) -> Policy:
    return Policy("p", limits=Limits(max_nodes=8, max_usd=50.0), rules=some)


@pytest.mark.parametrize(
    ("hour", "minute", "most"),
    [(21, 59, 8), (22, 0, 2), (0, 0, 2), (5, 59, 2), (6, 0, 8), (12, 0, 8)],
)
def test_a_window_across_midnight(hour: int, minute: int, most: int) -> None:
    now = NOON.replace(hour=hour, minute=minute)
    assert effective_limits(_policy(NIGHT), 1, None, now).max_nodes == most


@pytest.mark.parametrize(("minute", "most"), [(29, 8), (30, 2), (44, 2), (45, 8)])
def test_a_window_within_an_hour(minute: int, most: int) -> None:
    noon = Rule("noon", RuleSignal.TIME_OF_DAY, 12.5, 12.75, FEW)
    assert effective_limits(_policy(noon), 1, None, NOON.replace(minute=minute)).max_nodes == most


def test_a_window_within_the_day() -> None:
    day = Rule("day", RuleSignal.TIME_OF_DAY, 8, 18, FEW)
    assert effective_limits(_policy(day), 1, None, NOON).max_nodes == 2
    assert effective_limits(_policy(day), 1, None, NOON + timedelta(hours=6)).max_nodes == 8


@pytest.mark.parametrize(("length", "most"), [(1, 8), (2, 2), (4, 2), (5, 8)])
def test_the_queue_length(length: int, most: int) -> None:
    queue = Rule("queue", RuleSignal.QUEUE_LENGTH, 2, 5, FEW)
    assert effective_limits(_policy(queue), length, None, NOON).max_nodes == most


@pytest.mark.parametrize(
    ("slack_s", "most"), [(None, 8), (-1.0, 8), (0.0, 2), (7199.0, 2), (7200.0, 8)]
)
def test_the_slack_is_in_hours_and_unknown_holds_nothing(slack_s: float | None, most: int) -> None:
    urgent = Rule("urgent", RuleSignal.SLACK, 0, 2, FEW)
    assert effective_limits(_policy(urgent), 1, slack_s, NOON).max_nodes == most


def test_the_rest_of_the_limits_stays_and_the_last_rule_wins() -> None:
    one = Rule("one", RuleSignal.TIME_OF_DAY, 0, 24, Limits(max_nodes=3, max_usd=10.0))
    two = Rule("two", RuleSignal.TIME_OF_DAY, 0, 24, Limits(max_nodes=1))
    limits = effective_limits(_policy(one, two), 1, None, NOON)
    assert (limits.max_nodes, limits.max_usd) == (1, 10.0)


def test_of_rules_that_hold_the_tightest_wins() -> None:
    one = Rule("one", RuleSignal.TIME_OF_DAY, 0, 24, Limits(max_nodes=1, max_usd=10.0))
    two = Rule("two", RuleSignal.TIME_OF_DAY, 0, 24, Limits(max_nodes=3, max_usd=5000.0))
    limits = effective_limits(_policy(one, two), 1, None, NOON)
    assert (limits.max_nodes, limits.max_usd) == (1, 10.0)


def amounts(least: float) -> st.SearchStrategy[float | None]:
    return st.one_of(st.none(), st.floats(least, 1000.0))


NAMES = st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(tuple)
LIMITS = st.builds(
    Limits,
    **{field.name: amounts(1.0) for field in fields(Limits) if field.name.startswith("max_")},
    power_caps=st.booleans(),
    power_sweep=st.booleans(),
    providers=NAMES,
    regions=NAMES,
    capacity_types=st.lists(st.sampled_from(CapacityType), max_size=4, unique=True).map(tuple),
)


@given(own=LIMITS, thens=st.lists(LIMITS, max_size=3))
def test_no_rule_ever_loosens_a_limit(own: Limits, thens: list[Limits]) -> None:
    holding = tuple(
        Rule(f"r{n}", RuleSignal.TIME_OF_DAY, 0, 24, then) for n, then in enumerate(thens)
    )
    limits = effective_limits(Policy("p", limits=own, rules=holding), 1, None, NOON)
    for field in fields(Limits):
        before, after = getattr(own, field.name), getattr(limits, field.name)
        if field.name.startswith("max_"):
            bounds = [
                x for x in (before, *(getattr(t, field.name) for t in thens)) if x is not None
            ]
            assert after == min(bounds, default=None)
        elif isinstance(before, tuple):
            assert set(after) <= set(before) or not before
            assert after or not before
        elif field.name == "power_sweep":
            assert after == (before and all(then.power_sweep for then in thens))
        else:
            assert field.name == "power_caps", "neither a maximum nor a list of what is allowed"


def test_without_a_rule_that_holds_the_limits_are_the_policy_s_own() -> None:
    policy = _policy(NIGHT)
    assert effective_limits(policy, 1, None, NOON) is policy.limits


def test_the_engine_launches_within_the_limits_of_the_hour() -> None:
    """From 0 to 6 h on-demand only, by rule."""
    night = Rule(
        "night",
        RuleSignal.TIME_OF_DAY,
        0,
        6,
        Limits(capacity_types=(CapacityType.ON_DEMAND,)),
    )
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[task(20 * HOUR_S, 22 * HOUR_S)],
        policy=rules("uniform_progress", night, hysteresis=False),
        tick_s=300,
    )
    scene.go(5.9 * HOUR_S)
    assert scene.pools() == [SAFE]
    scene.go(0.5 * HOUR_S)
    assert SPOT_A in scene.pools()


def test_slack_is_what_remains_after_the_work_and_not_the_time_to_the_deadline() -> None:
    """10 h of work in 12 h: 1.9 h of slack from the start, though the deadline is 12 h away."""
    relaxed = Rule("relaxed", RuleSignal.SLACK, 1.5, 1000, SPOT_ONLY)
    scene = Scene(
        always(SAFE, 9, 8.0),
        jobs=[task(10 * HOUR_S, 12 * HOUR_S)],
        policy=rules("on_demand", relaxed),
    )
    scene.go(0.35 * HOUR_S)
    assert not scene.events(NodeLaunched)
    scene.go(0.15 * HOUR_S)
    (launched,) = scene.events(NodeLaunched)
    assert 0.35 * HOUR_S <= (launched.launched_at - T0).total_seconds() <= 0.5 * HOUR_S
