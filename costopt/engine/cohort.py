"""Cohorts: jobs that follow one policy by one strategy, and are decided together.

Also the port that calls the strategies of all cohorts, and the limits in force: the policy's own,
tightened by the rules whose trigger holds.
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
    """What a job follows. Where capacity is short, a higher ``priority`` goes first."""

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
    """Return the jobs grouped by strategy, in the order of the first job of each group."""
    found: dict[int, tuple[JobTerms, list[str]]] = {}
    for job, followed in terms:
        found.setdefault(id(followed.strategy), (followed, []))[1].append(job)
    return tuple(
        Cohort(first.policy, first.strategy, tuple(names)) for first, names in found.values()
    )


StrategyRequest = tuple[Strategy, View]
"""A cohort's strategy, and the view that it decides on."""


class DecisionScheduler(Protocol):
    """Calls strategies; may call some later or with less time, where time is short."""

    def decide(self, asked: Sequence[StrategyRequest]) -> list[Decision]:
        """Return one decision for each job of the views, in their order."""


class SequentialDecider:
    """Calls one strategy after the other."""

    def decide(self, asked: Sequence[StrategyRequest]) -> list[Decision]:
        """Return the decisions of all strategies, in order."""
        return [d for strategy, view in asked for d in strategy.decide(view).decisions]


def effective_limits(
    policy: Policy, queue_length: int, slack_s: float | None, now: datetime
) -> Limits:
    """Return the policy's limits, tightened by each rule that holds.

    ``slack_s`` is the minimum over all jobs, None if unknown: then no slack rule holds. Where no
    rule holds, this is the object ``policy.limits`` itself.
    """
    limits = policy.limits
    for rule in policy.rules:
        signal = _signal(rule, queue_length, slack_s, now)
        if signal is not None and rule.is_active(signal):
            limits = limits.tightened(rule.then)
            if rule.then.power_caps != policy.limits.power_caps:
                limits = replace(limits, power_caps=rule.then.power_caps)
            if limits.power_sweep and not rule.then.power_sweep:
                limits = replace(limits, power_sweep=False)
    return limits


def _signal(rule: Rule, queue_length: int, slack_s: float | None, now: datetime) -> float | None:
    """Return the value of the rule's signal in the rule's unit."""
    match rule.trigger:
        case RuleSignal.TIME_OF_DAY:
            return now.hour + now.minute / 60 + now.second / 3600
        case RuleSignal.QUEUE_LENGTH:
            return float(queue_length)
        case RuleSignal.SLACK:
            return None if slack_s is None else slack_s / 3600
