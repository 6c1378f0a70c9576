"""A tick decides for as many jobs as it has time for."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from costopt.daemon.loop.strategy_pool import StrategyGroup, StrategyPool
from costopt.daemon.loop.tick_budget import PACE, TickScheduler
from costopt.domain.control import Submission
from costopt.domain.fleet import Node, NodeState
from costopt.domain.policy import StrategySpec
from costopt.domain.ports import Strategy
from costopt.domain.progress import Progress
from costopt.domain.view import Decision, Desired, JobView, Target, View
from costopt.market.hazard import LearnedHazard
from costopt.strategies import build
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.fault_isolation import FaultIsolatedStrategy, lifetime_model
from costopt.strategies.shield import ShieldedStrategy, slack_s
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, rules, task
from tests.support.market_fixtures import T0
from tests.support.strategy_fixtures import build_view, offer


class Slow:
    """Takes a second for each decision, of the stopwatch that the test holds."""

    def __init__(self, watch: list[float], asked: list[str]) -> None:
        self._watch = watch
        self._asked = asked

    def decide(self, view: View) -> Desired:
        (job_view,) = view.jobs
        self._watch[0] += 1
        self._asked.append(job_view.job.name)
        return Desired((Decision(job_view.job.name, (Target(SPOT_A, 1),), "decided"),))


class _Pace:
    """What is decided of one view after the other."""

    def __init__(self, family: StrategyGroup, within_s: float, watch: list[float]) -> None:
        self._family = family
        self._paced = TickScheduler(within_s, lambda: watch[0])

    def decide(self, view: View) -> Desired:
        return Desired(tuple(self._paced.decide([(self._family, view)])))


def _node(job: str) -> Node:
    return Node(f"n-{job}", "costopt", job, SPOT_A, "key", NodeState.RUNNING, T0, 1.0)


def _view(*jobs: JobView, minutes: int = 0) -> View:
    return View(T0 + timedelta(minutes=minutes), 60.0, 0.0, jobs, (), {}, {}, rules("greedy_spot"))


def _job(name: str, *nodes: Node) -> JobView:
    return JobView(task(name=name), Progress(), nodes)


def test_every_job_has_its_turn_and_keeps_what_it_has_until_then() -> None:
    watch, asked = [0.0], list[str]()
    strategy = _Pace(StrategyGroup(lambda: Slow(watch, asked)), 2.0, watch)
    view = _view(*(_job(name) for name in "abcd"), _job("e", _node("e")))
    first = strategy.decide(view)
    assert [d.job for d in first.decisions] == ["a", "b", "c", "d", "e"]
    assert asked == ["e", "a"], "that with nodes first"
    assert [d.rule for d in first.decisions] == [None, PACE, PACE, PACE, None]
    assert first.decisions[1].targets == ()
    for minutes in (1, 2):
        strategy.decide(replace(view, now=T0 + timedelta(minutes=minutes)))
    assert set(asked) == set("abcde")


def _market(*jobs: JobView, minutes: int = 0) -> View:
    """With on-demand nodes to be had, so that jobs have slack."""
    seen = build_view(task(), (offer(SPOT_A, 1.0), offer(SAFE, 3.0)), now_s=60.0 * minutes)
    return replace(seen, tick_s=60.0, jobs=jobs)


def _due(name: str, slack_h: float, *nodes: Node) -> JobView:
    """A job of four hours."""
    return JobView(task(name=name, deadline_s=(4.0 + slack_h) * HOUR_S), Progress(), nodes)


def test_who_is_near_the_deadline_does_not_wait_behind_those_with_slack() -> None:
    watch, asked = [0.0], list[str]()
    strategy = _Pace(StrategyGroup(lambda: ShieldedStrategy(Slow(watch, asked))), 2.0, watch)
    jobs = [_due(f"far{n}", 40.0 + n) for n in range(20)] + [_due("near", 1.0), _due("next", 2.0)]
    strategy.decide(_market(*jobs))
    assert asked == ["near", "next"]
    soon = _due("soon", 0.3)
    strategy.decide(_market(*jobs, soon, minutes=1))
    assert asked[2:] == ["soon", "far0"], "those with slack have turns as well"


def test_none_is_late_for_having_waited() -> None:
    """Forty jobs, two decisions a tick: all are on the safe side before their slack ends."""
    watch = [0.0]
    strategy = _Pace(StrategyGroup(lambda: ShieldedStrategy(Slow(watch, []))), 2.0, watch)
    jobs = [_due(f"{n}", 0.1 + 0.05 * (n * 17 % 40)) for n in range(40)]
    slacks = {jv.job.name: slack_s(_market(jv), jv) or 0.0 for jv in jobs}
    moved = set[str]()
    for minute in range(130):
        for decision in strategy.decide(_market(*jobs, minutes=minute)).decisions:
            if decision.targets == (Target(SAFE, 1),):
                moved.add(decision.job)
        assert {name for name, slack in slacks.items() if slack < 60.0 * minute} <= moved, minute
    assert len(moved) == len(jobs)


def _of(tenant: str, *names: str) -> tuple[JobView, ...]:
    return tuple(JobView(replace(task(name=name), tenant=tenant), Progress(), ()) for name in names)


def test_the_time_of_a_tick_is_dealt_to_all_tenants_whatever_their_policies() -> None:
    """One with forty jobs of two policies, one with two, one with one; three decisions a tick."""
    watch, asked = [0.0], list[str]()
    paced = TickScheduler(3.0, lambda: watch[0])
    groups = (
        _of("big", *(f"big{n}" for n in range(20))),
        _of("big", *(f"more{n}" for n in range(20))),
        _of("small", "one", "two"),
        _of("lone", "lone"),
    )
    families = [StrategyGroup(lambda: Slow(watch, asked)) for _ in groups]

    def tick(minutes: int) -> list[Decision]:
        views = [_view(*jobs, minutes=minutes) for jobs in groups]
        return paced.decide(list(zip(families, views, strict=True)))

    assert [d.job for d in tick(0)] == [jv.job.name for jobs in groups for jv in jobs]
    assert len(asked) == 3
    assert sorted({name[:3] for name in asked}) == ["big", "lon", "one"]
    for minutes in range(1, 30):
        tick(minutes)
    assert len(asked) == 90, "no tick takes longer for there being many policies"
    by_tenant = Counter("big" if name[:3] in ("big", "mor") else name[:3] for name in asked)
    assert by_tenant == {"big": 30, "lon": 30, "one": 15, "two": 15}


def test_a_tenant_that_wants_little_leaves_the_rest_of_the_time_to_others() -> None:
    watch, asked = [0.0], list[str]()
    paced = TickScheduler(10.0, lambda: watch[0])
    many, few = _of("many", *(f"{n}" for n in range(50))), _of("few", "few")
    families = [StrategyGroup(lambda: Slow(watch, asked)) for _ in range(2)]
    for minutes in range(5):
        views = [_view(*jobs, minutes=minutes) for jobs in (many, few)]
        paced.decide(list(zip(families, views, strict=True)))
    assert Counter(name == "few" for name in asked) == {True: 5, False: 35}


def test_no_tenant_is_starved_by_others_that_come_new() -> None:
    """Each tick brings a tenant with a job, and there is time for one decision."""
    watch, asked = [0.0], list[str]()
    paced = TickScheduler(1.0, lambda: watch[0])
    family = StrategyGroup(lambda: Slow(watch, asked))
    jobs = list(_of("old", "old"))
    for minutes in range(5):
        jobs += _of(f"new{minutes}", f"new{minutes}")
        paced.decide([(family, _view(*jobs, minutes=minutes))])
    assert asked == ["new0", "old", "new1", "new2", "new3"]


def test_asked_again_at_once_there_is_no_more_time() -> None:
    watch, asked = [0.0], list[str]()
    strategy = _Pace(StrategyGroup(lambda: Slow(watch, asked)), 2.0, watch)
    for _ in range(3):
        strategy.decide(_view(*(_job(name) for name in "abcd")))
    assert len(asked) == 2


def test_a_strategy_of_all_jobs_is_asked_as_it_is() -> None:
    watch, asked = [0.0], list[str]()
    joint = Slow(watch, asked)
    decisions = TickScheduler(0.0, lambda: watch[0]).decide([(joint, _view(_job("a")))])
    assert [d.reason for d in decisions] == ["decided"]


def test_who_lost_nodes_goes_first() -> None:
    watch, asked = [0.0], list[str]()
    strategy = _Pace(StrategyGroup(lambda: Slow(watch, asked)), 1.0, watch)
    jobs = [_job(name, _node(name)) for name in "abc"]
    for minutes in range(3):
        strategy.decide(_view(*jobs, minutes=minutes))
    asked.clear()
    jobs[1] = replace(jobs[1], nodes=())
    strategy.decide(_view(*jobs, minutes=3))
    assert asked == ["b"]


def test_a_job_without_a_decision_keeps_its_nodes() -> None:
    watch, asked = [0.0], list[str]()
    strategy = _Pace(StrategyGroup(lambda: Slow(watch, asked)), 1.0, watch)
    elsewhere = replace(_node("b"), pool=SPOT_B)
    desired = strategy.decide(_view(_job("a", _node("a")), _job("b", elsewhere)))
    assert desired.decisions[1].targets == (Target(SPOT_B, 1),)


def test_jobs_learn_together() -> None:
    family = StrategyGroup(lambda: build(StrategySpec("adaptive")))
    family.decide(_view(_job("a"), _job("b")))
    inner = [lifetime_model(each) for each in family._of_job.values()]
    assert len(inner) == 2
    assert all(each is family.lifetimes for each in inner)


def test_asked_again_at_once_only_who_was_refused_decides_again() -> None:
    asked = list[str]()
    strategy = _Pace(StrategyGroup(lambda: Slow([0.0], asked)), 60.0, [0.0])
    view = replace(_view(*(_job(name) for name in "ab")), offers=(offer(SPOT_A, 1.0),))
    strategy.decide(view)
    there = replace(view, jobs=(_job("a", _node("a")), view.jobs[1]))
    strategy.decide(there)
    assert asked == ["a", "b"]
    full = replace(there, offers=(replace(view.offers[0], nodes_available=0),))
    strategy.decide(full)
    assert asked == ["a", "b", "b"]
    strategy.decide(replace(full, now=T0 + timedelta(minutes=1)))
    assert sorted(asked[3:]) == ["a", "b"]


def test_tenants_that_follow_the_same_policy_learn_and_solve_together(tmp_path: Path) -> None:
    strategies = StrategyPool(tmp_path, LearnedHazard({}), T0)
    given = [Submission("job", tenant, 0, "", "policy", "/", T0, "me") for tenant in ("a", "b")]
    one, other = (strategies.terms(rules("adaptive"), each, T0).strategy for each in given)
    assert isinstance(one, StrategyGroup)
    assert isinstance(other, StrategyGroup)
    assert one is not other
    assert one.lifetimes is other.lifetimes is not None


def test_policies_share_what_is_solved_and_not_what_is_learned(tmp_path: Path) -> None:
    """Memory would grow with the number of policies."""
    strategies = StrategyPool(tmp_path, LearnedHazard({}), T0)
    given = [Submission("job", "a", 0, "", text, "/", T0, "me") for text in ("one", "other")]
    families = [strategies.terms(rules("adaptive"), each, T0).strategy for each in given]
    one, other = (_adaptive(each) for each in families)
    assert one.programs is other.programs
    assert one.lifetimes is not other.lifetimes


def _adaptive(family: Strategy) -> AdaptiveStrategy:
    """That of a job."""
    assert isinstance(family, StrategyGroup)
    family.decide(_view(_job("job")))
    strategy = family._of_job["job"]
    assert isinstance(strategy, FaultIsolatedStrategy)
    assert isinstance(strategy.inner, ShieldedStrategy)
    assert isinstance(strategy.inner.inner, AdaptiveStrategy)
    return strategy.inner.inner


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
def test_a_strategy_that_no_job_follows_is_forgotten_but_for_what_it_learned(
    tmp_path: Path, kept: bool
) -> None:
    strategies = StrategyPool(tmp_path, LearnedHazard({}), T0)

    def follow() -> Any:
        given = Submission("job", "a", 0, "", "policy", "/", T0, "me")
        return strategies.terms(rules("adaptive"), given, T0).strategy

    strategy = follow()
    strategy.lifetimes.observe(("job", str(SPOT_A), 1), "aws/r", True, T0)
    gone, learned = ref(strategy), strategy.lifetimes.to_json()
    del strategy
    gc.collect()
    assert gone() is None
    if kept:
        strategies.save(T0)
    assert follow().lifetimes.to_json() == learned
