"""Cohorts, who asks strategies, rules in force.

Jobs that follow one policy by one strategy: they are decided together.

Who asks the strategies of all cohorts for what they decide.

Which limits hold now: the policy's own, tightened by the rules whose trigger holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from costopt.domain.policy import Limits, Policy, Rule, RuleSignal
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, View


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What a job follows. Where there is not room for all, a higher ``priority`` goes first."""

    policy: Policy
    strategy: Strategy
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Cohort:
    """The jobs of one strategy; the limits of its policy bind them together."""

    policy: Policy
    strategy: Strategy
    jobs: tuple[str, ...]


def group_into_cohorts(terms: Iterable[tuple[str, JobTerms]]) -> tuple[Cohort, ...]:
    """Jobs with their terms, parted by strategy, in the order of the first job of each."""
    found: dict[int, tuple[JobTerms, list[str]]] = {}
    for job, followed in terms:
        found.setdefault(id(followed.strategy), (followed, []))[1].append(job)
    return tuple(
        Cohort(first.policy, first.strategy, tuple(names)) for first, names in found.values()
    )


StrategyRequest = tuple[Strategy, View]
"""A cohort's strategy, and what it sees."""


class DecisionScheduler(Protocol):
    """May ask some for less, or later, where there is not the time for all."""

    def decide(self, asked: Sequence[StrategyRequest]) -> list[Decision]:
        """One decision for each job of the views, in their order."""


class SequentialDecider:
    """Asks one after the other."""

    def decide(self, asked: Sequence[StrategyRequest]) -> list[Decision]:
        """What each decides."""
        return [d for strategy, view in asked for d in strategy.decide(view).decisions]


def effective_limits(
    policy: Policy, queue_length: int, slack_s: float | None, now: datetime
) -> Limits:
    """The policy's limits, tightened by each rule that holds.

    ``slack_s`` is the least of all jobs, None where none is known: no slack rule holds then. The
    very object ``policy.limits`` where no rule holds.
    """
    limits = policy.limits
    for rule in policy.rules:
        signal = _signal(rule, queue_length, slack_s, now)
        if signal is not None and rule.is_active(signal):
            limits = limits.tightened(rule.then)
            if rule.then.power_caps != policy.limits.power_caps:
                limits = replace(limits, power_caps=rule.then.power_caps)
    return limits


def _signal(rule: Rule, queue_length: int, slack_s: float | None, now: datetime) -> float | None:
    """The value of the rule's signal in the rule's unit."""
    match rule.trigger:
        case RuleSignal.TIME_OF_DAY:
            return now.hour + now.minute / 60 + now.second / 3600
        case RuleSignal.QUEUE_LENGTH:
            return float(queue_length)
        case RuleSignal.SLACK:
            return None if slack_s is None else slack_s / 3600
