"""Why a run went as it did: each decision beside what else was weighed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from costopt.domain.events import DecisionMade
from costopt.formatting import seconds_text, usd_text
from costopt.report.table import Table

COLUMNS = ("hour", "choice", "expected $", "instead", "slack", "rule")
MAX_ROWS = 200
MAX_ALTERNATIVES = 3


def decision_table(made: Sequence[DecisionMade], begun_at: datetime, title: str) -> Table:
    """The first MOST_ROWS decisions; of what else was weighed, the MOST_INSTEAD cheapest."""
    more = "" if len(made) <= MAX_ROWS else f" (the first {MAX_ROWS} of {len(made)})"
    rows = tuple(_cells(event, begun_at) for event in made[:MAX_ROWS])
    return Table(f"{title}{more}", COLUMNS, rows, frozenset({0, 2, 4}))


def _cells(event: DecisionMade, begun_at: datetime) -> tuple[str, ...]:
    choice = " + ".join(f"{nodes} × {pool}" for pool, nodes in event.targets) or "wait"
    values = {what: value for what, value, _ in event.alternatives if value is not None}
    chosen = values.pop(choice, None)
    instead = sorted(values.items(), key=lambda pair: pair[1])[:MAX_ALTERNATIVES]
    return (
        f"{(event.at - begun_at).total_seconds() / 3600:.2f}",
        choice,
        usd_text(chosen),
        "; ".join(f"{what} {usd_text(value)}" for what, value in instead),
        seconds_text(event.slack_s),
        event.rule or "",
    )
