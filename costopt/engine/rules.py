"""Which limits hold now: the policy's own, tightened by the rules whose trigger holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime

from costopt.domain.policy import Limits, Policy, Rule, Trigger
from costopt.domain.view import JobView

UNSET = Limits()


def limits_now(policy: Policy, jobs: Sequence[JobView], now: datetime) -> Limits:
    """The policy's limits, with what each holding rule sets in ``then`` put over them in order.

    The very object ``policy.limits`` where no rule holds.
    """
    limits = policy.limits
    for rule in policy.rules:
        signal = _signal(rule, jobs, now)
        if signal is not None and rule.holds(signal):
            changes = {
                f.name: getattr(rule.then, f.name)
                for f in fields(Limits)
                if getattr(rule.then, f.name) != getattr(UNSET, f.name)
            }
            limits = replace(limits, **changes)
    return limits


def _signal(rule: Rule, jobs: Sequence[JobView], now: datetime) -> float | None:
    """The value of the rule's signal, None where there is none: no job has a slack."""
    match rule.trigger:
        case Trigger.TIME_OF_DAY:
            return now.hour + now.minute / 60 + now.second / 3600
        case Trigger.QUEUE_LENGTH:
            return float(len(jobs))
        case Trigger.SLACK:
            left = [(jv.job.deadline_at - now).total_seconds() / 3600 for jv in jobs]
            return min(left, default=None)
