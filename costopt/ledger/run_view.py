"""One job's events and everything they fold to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.errors import LedgerError
from costopt.domain.events import CheckpointCommitted, DecisionMade, Event
from costopt.ledger.job_account import JobAccount
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.summary import JobSummary, RunCurves


@dataclass(frozen=True, slots=True)
class RunView:
    """One job's events and everything they fold to at ``now``."""

    now: datetime
    events: tuple[Event, ...]
    summary: JobSummary
    intervals: tuple[NodeInterval, ...]
    curves: RunCurves
    checkpoints: tuple[datetime, ...]

    @classmethod
    def of(cls, events: Iterable[Event], now: datetime) -> RunView:
        """Fold the events of one job. Raises LedgerError for none, or for several jobs'."""
        facts = tuple(events)
        if not facts:
            raise LedgerError(
                "there are no events to report", hint="check the job's name", code="no_events"
            )
        account = JobAccount(facts[0].job)
        for event in facts:
            account.apply(event)
        return cls(
            now=now,
            events=facts,
            summary=account.summary(now),
            intervals=account.intervals(now),
            curves=account.curves(now),
            checkpoints=tuple(e.at for e in facts if isinstance(e, CheckpointCommitted)),
        )

    @property
    def decisions(self) -> tuple[DecisionMade, ...]:
        """Every decision of the strategy, in order."""
        return tuple(event for event in self.events if isinstance(event, DecisionMade))

    @property
    def begun_at(self) -> datetime:
        """The job's start, or the first event where that came sooner."""
        first = self.events[0].at
        return first if self.summary.start_at is None else min(first, self.summary.start_at)

    @property
    def ended_at(self) -> datetime:
        """The last thing that happened: now for a run with living nodes."""
        if self.summary.nodes_alive:
            return self.now
        ends = [row.ended_at or self.now for row in self.intervals]
        return max([self.events[-1].at, *ends])

    def expected_totals(self) -> list[tuple[datetime, float]]:
        """Return dollars spent by then and expected to the end, at each decision with both."""
        totals = []
        for event in self.decisions:
            to_come = event.expected_usd()
            spent = [point.usd_micros for point in self.curves.spend if point.at <= event.at]
            if to_come is not None:
                totals.append((event.at, to_come + (spent[-1] if spent else 0) / 1e6))
        return totals
