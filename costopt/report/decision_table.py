"""Why a run went as it did: each decision beside what else was weighed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from costopt.domain.events import DecisionMade
from costopt.report.figure import UNKNOWN, duration, usd
from costopt.report.table import Table

COLUMNS = ("hour", "choice", "expected $", "instead", "slack", "rule")
MOST_ROWS = 200
MOST_INSTEAD = 3


def decision_table(made: Sequence[DecisionMade], begun_at: datetime, title: str) -> Table:
    """The first MOST_ROWS decisions; of what else was weighed, the MOST_INSTEAD cheapest."""
    more = "" if len(made) <= MOST_ROWS else f" (the first {MOST_ROWS} of {len(made)})"
    rows = tuple(_cells(event, begun_at) for event in made[:MOST_ROWS])
    return Table(f"{title}{more}", COLUMNS, rows, frozenset({0, 2, 4}))


def _cells(event: DecisionMade, begun_at: datetime) -> tuple[str, ...]:
    choice = " + ".join(f"{nodes} × {pool}" for pool, nodes in event.targets) or "wait"
    values = {what: value for what, value, _ in event.alternatives if value is not None}
    chosen = values.pop(choice, None)
    instead = sorted(values.items(), key=lambda pair: pair[1])[:MOST_INSTEAD]
    return (
        f"{(event.at - begun_at).total_seconds() / 3600:.2f}",
        choice,
        UNKNOWN if chosen is None else usd(chosen * 1e6),
        "; ".join(f"{what} {usd(value * 1e6)}" for what, value in instead),
        duration(event.slack_s),
        event.rule or "",
    )
