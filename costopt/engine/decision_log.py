"""Records decisions, and the plans that they rest on, where they differ from the last ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import product

from costopt.domain.events import DecisionMade, Event, PlanMade
from costopt.domain.plan import COOLDOWN, HourlyPlan
from costopt.domain.view import Decision
from costopt.engine.failures import JobFailures
from costopt.engine.journal import Journal
from costopt.ledger.codec import check_finite


class DecisionLog:
    """Writes to the ledger; with ``explain``, each decision with its alternatives."""

    def __init__(self, journal: Journal, failures: JobFailures, *, explain: bool) -> None:
        self._journal = journal
        self._failures = failures
        self._explain = explain

    def record(self, decisions: Iterable[Decision], now: datetime) -> None:
        """Record new decisions and plans in one write, as there may be many jobs."""
        events: list[Event] = []
        for describe, decision in product((self._planned, self._made), tuple(decisions)):
            with self._failures.isolate(decision.job, now):
                event = describe(decision, now)
                if event is not None:
                    check_finite(event)
                    events.append(event)
        self._journal.write(*events)

    def _planned(self, decision: Decision, now: datetime) -> PlanMade | None:
        """Return the event for the plan that a decision rests on, or None where it is the last."""
        plan, last = decision.plan, self._journal.records[decision.job].planned
        if not isinstance(plan, HourlyPlan):
            return None
        figures = (plan.from_at, plan.usd_micros, plan.wh, plan.prices)
        if last and figures == (last.from_at, last.usd_micros, last.wh, last.prices):
            return None
        return PlanMade(
            at=now,
            job=decision.job,
            from_at=plan.from_at,
            usd_micros=plan.usd_micros,
            wh=plan.wh,
            prices=plan.prices,
        )

    def _made(self, decision: Decision, now: datetime) -> DecisionMade | None:
        """Return the event for a decision, or None where it equals the last one."""
        record = self._journal.records[decision.job]
        targets = tuple((str(t.pool), t.nodes) for t in decision.targets)
        # Once it is recorded, the end of a pool's cooldown is not a new decision.
        cooled = record.rule == COOLDOWN and decision.rule is None
        if targets == record.targets and (cooled or decision.rule == record.rule):
            return None
        weighed = decision.alternatives if self._explain else ()
        return DecisionMade(
            at=now,
            job=decision.job,
            decision_id=f"{decision.job}-d{record.decision_count + 1}",
            targets=targets,
            reason=decision.reason,
            rule=decision.rule,
            slack_s=decision.slack_s,
            alternatives=tuple((a.choice, a.value_usd, a.note) for a in weighed),
        )
