"""A tick decides for as many jobs as it has time for."""

from __future__ import annotations

import gc
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from costopt.daemon.paced import PACE, Paced
from costopt.daemon.strategies import Strategies
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Progress
from costopt.domain.policy import StrategyChoice
from costopt.domain.submission import Submission
from costopt.domain.view import Decision, Desired, JobView, Target, View
from costopt.market.hazard import LearnedHazard
from costopt.strategies import build
from costopt.strategies.learner import lifetimes_of
from costopt.strategies.shield import Shielded, slack_s
from tests.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, rules, task
from tests.market_fixtures import T0
from tests.strategy_fixtures import look, offer


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


def _node(job: str) -> Node:
    return Node(f"n-{job}", "costopt", job, SPOT_A, "key", NodeState.RUNNING, T0, 1.0)


def _view(*jobs: JobView) -> View:
    return View(T0, 60.0, 0.0, jobs, (), {}, {}, rules("greedy_spot"))


def _job(name: str, *nodes: Node) -> JobView:
    return JobView(task(name=name), Progress(), nodes)


def test_every_job_has_its_turn_and_keeps_what_it_has_until_then() -> None:
    watch, asked = [0.0], list[str]()
    strategy = Paced(lambda: Slow(watch, asked), 2.0, lambda: watch[0])
    view = _view(*(_job(name) for name in "abcd"), _job("e", _node("e")))
    first = strategy.decide(view)
    assert [d.job for d in first.decisions] == ["a", "b", "c", "d", "e"]
    assert asked == ["e", "a"], "that with nodes first"
    assert [d.rule for d in first.decisions] == [None, PACE, PACE, PACE, None]
    assert first.decisions[1].targets == ()
    strategy.decide(view)
    strategy.decide(view)
    assert set(asked) == set("abcde")


def _market(*jobs: JobView, minutes: int = 0) -> View:
    """With on-demand nodes to be had, so that jobs have slack."""
    seen = look(task(), (offer(SPOT_A, 1.0), offer(SAFE, 3.0)), now_s=60.0 * minutes)
    return replace(seen, tick_s=60.0, jobs=jobs)


def _due(name: str, slack_h: float, *nodes: Node) -> JobView:
    """A job of four hours."""
    return JobView(task(name=name, deadline_s=(4.0 + slack_h) * HOUR_S), Progress(), nodes)


def test_who_is_near_the_deadline_does_not_wait_behind_those_with_slack() -> None:
    watch, asked = [0.0], list[str]()
    strategy = Paced(lambda: Shielded(Slow(watch, asked)), 2.0, lambda: watch[0])
    jobs = [_due(f"far{n}", 40.0 + n) for n in range(20)] + [_due("near", 1.0), _due("next", 2.0)]
    strategy.decide(_market(*jobs))
    assert asked == ["near", "next"]
    soon = _due("soon", 0.3)
    strategy.decide(_market(*jobs, soon, minutes=1))
    assert asked[2:] == ["soon", "far0"], "those with slack have turns as well"


def test_none_is_late_for_having_waited() -> None:
    """Forty jobs, two decisions a tick: all are on the safe side before their slack ends."""
    watch = [0.0]
    strategy = Paced(lambda: Shielded(Slow(watch, [])), 2.0, lambda: watch[0])
    jobs = [_due(f"{n}", 0.1 + 0.05 * (n * 17 % 40)) for n in range(40)]
    slacks = {jv.job.name: slack_s(_market(jv), jv) or 0.0 for jv in jobs}
    moved = set[str]()
    for minute in range(130):
        for decision in strategy.decide(_market(*jobs, minutes=minute)).decisions:
            if decision.targets == (Target(SAFE, 1),):
                moved.add(decision.job)
        assert {name for name, slack in slacks.items() if slack < 60.0 * minute} <= moved, minute
    assert len(moved) == len(jobs)


def test_who_lost_nodes_goes_first() -> None:
    watch, asked = [0.0], list[str]()
    strategy = Paced(lambda: Slow(watch, asked), 1.0, lambda: watch[0])
    jobs = [_job(name, _node(name)) for name in "abc"]
    for _ in range(3):
        strategy.decide(_view(*jobs))
    asked.clear()
    jobs[1] = replace(jobs[1], nodes=())
    strategy.decide(_view(*jobs))
    assert asked == ["b"]


def test_a_job_without_a_decision_keeps_its_nodes() -> None:
    watch, asked = [0.0], list[str]()
    strategy = Paced(lambda: Slow(watch, asked), 1.0, lambda: watch[0])
    elsewhere = replace(_node("b"), pool=SPOT_B)
    desired = strategy.decide(_view(_job("a", _node("a")), _job("b", elsewhere)))
    assert desired.decisions[1].targets == (Target(SPOT_B, 1),)


def test_jobs_learn_together() -> None:
    strategy = Paced(lambda: build(StrategyChoice("adaptive")), 60.0)
    strategy.decide(_view(_job("a"), _job("b")))
    inner = [lifetimes_of(each) for each in strategy._strategies.values()]
    assert len(inner) == 2
    assert all(each is strategy.lifetimes for each in inner)


def test_asked_again_at_once_only_who_was_refused_decides_anew() -> None:
    asked = list[str]()
    strategy = Paced(lambda: Slow([0.0], asked), 60.0)
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
    strategies = Strategies(tmp_path, LearnedHazard({}), T0, 2.0)
    given = [Submission("job", tenant, 0, "", "policy", "/", T0, "me") for tenant in ("a", "b")]
    one, other = (strategies.terms(rules("adaptive"), each, T0).strategy for each in given)
    assert isinstance(one, Paced)
    assert isinstance(other, Paced)
    assert one is not other
    assert one.lifetimes is other.lifetimes is not None


@pytest.mark.parametrize("kept", [False, True])
def test_a_strategy_that_no_job_follows_is_forgotten_but_for_what_it_learned(
    tmp_path: Path, kept: bool
) -> None:
    strategies = Strategies(tmp_path, LearnedHazard({}), T0, 2.0)

    def follow() -> Any:
        given = Submission("job", "a", 0, "", "policy", "/", T0, "me")
        return strategies.terms(rules("adaptive"), given, T0).strategy

    strategy = follow()
    strategy.lifetimes.look(("job", str(SPOT_A), 1), "aws/r", True, T0)
    gone, learned = ref(strategy), strategy.lifetimes.plain()
    del strategy
    gc.collect()
    assert gone() is None
    if kept:
        strategies.keep(T0)
    assert follow().lifetimes.plain() == learned
