"""A strategy that raises, or leaves a job out, troubles that job alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.progress import Progress
from costopt.domain.view import Decision, Desired, JobView, Target, View
from costopt.strategies.fault_isolation import FAILED, FaultIsolatedStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, task
from tests.support.strategy_fixtures import build_view, nodes_in, offer

MARKET = (offer(SPOT_A, 1.0), offer(SAFE, 3.0))


class Moody:
    """Wants SPOT_A for each job; raises where it is asked for one of ``bad``."""

    def __init__(self, bad: set[str], asked: list[str]) -> None:
        self._bad = bad
        self._asked = asked

    def decide(self, view: View) -> Desired:
        names = [jv.job.name for jv in view.jobs]
        self._asked.append("".join(names))
        if not self._bad.isdisjoint(names):
            raise ZeroDivisionError("its own numbers")
        return Desired(tuple(Decision(name, (Target(SPOT_A, 1),), "wanted") for name in names))


def _view(names: str, deadline_s: float = 40 * HOUR_S) -> View:
    """Jobs that have a node of SPOT_B each."""
    jobs = [task(name=name, deadline_s=deadline_s) for name in names]
    views = tuple(JobView(j, Progress(), nodes_in(SPOT_B, job=j.name)) for j in jobs)
    return replace(build_view(jobs[0], MARKET), jobs=views)


def _failed(desired: Desired) -> str:
    return "".join(d.job for d in desired.decisions if d.rule == FAILED)


def test_it_fails_for_the_job_whose_fault_it_is() -> None:
    bad, asked = {"c"}, list[str]()
    strategy = FaultIsolatedStrategy(lambda: Moody(bad, asked))
    first = strategy.decide(_view("abcde"))
    assert [d.job for d in first.decisions] == list("abcde")
    assert _failed(first) == "c"
    (held,) = (d for d in first.decisions if d.rule == FAILED)
    assert held.targets == (Target(SPOT_B, 1),)
    assert "ZeroDivisionError: its own numbers" in held.reason
    assert all(d.targets == (Target(SPOT_A, 1),) for d in first.decisions if d is not held)
    asked.clear()
    assert _failed(strategy.decide(_view("abcde"))) == "c"
    assert asked == ["abde", "c"], "the others are decided together as before"
    bad.clear()
    assert _failed(strategy.decide(_view("abcde"))) == ""
    asked.clear()
    strategy.decide(_view("abcde"))
    assert asked == ["abcde"]


def test_one_that_fails_for_all_is_reported_all() -> None:
    strategy = FaultIsolatedStrategy(lambda: Moody(set("ab"), []))
    assert _failed(strategy.decide(_view("ab"))) == "ab"
    assert _failed(strategy.decide(_view("a"))) == "a"


@pytest.mark.parametrize("names", ["a", "ab"])
def test_the_shield_acts_where_the_strategy_fails(names: str) -> None:
    strategy = FaultIsolatedStrategy(lambda: Moody(set(names), []))
    decisions = strategy.decide(_view(names, deadline_s=4.1 * HOUR_S)).decisions
    assert [d.targets for d in decisions] == [(Target(SAFE, 1),)] * len(names)
    assert all("the deadline binds" in d.reason for d in decisions)
    assert all(d.slack_s is not None for d in decisions)


class Forgetful:
    """Decides on the first job only."""

    def decide(self, view: View) -> Desired:
        return Desired((Decision(view.jobs[0].job.name, (), "waits"),))


def test_a_job_that_is_left_out_keeps_its_nodes() -> None:
    desired = FaultIsolatedStrategy(Forgetful).decide(_view("ab"))
    assert [d.job for d in desired.decisions] == ["a", "b"]
    no_one = Desired(())

    class Silent:
        def decide(self, view: View) -> Desired:
            return no_one

    (kept,) = FaultIsolatedStrategy(Silent).decide(_view("a")).decisions
    assert (kept.targets, kept.rule) == ((Target(SPOT_B, 1),), FAILED)
