"""Which limits hold now: the policy's own, tightened by the rules whose trigger holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from costopt.domain.policy import Limits, Policy, Rule, RuleSignal


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
