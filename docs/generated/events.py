"""Generates docs/events.md from the event classes: ``python -m costopt.cli.event_reference``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields

from costopt.domain.events import EVENT_TYPES, Event

HEAD = """\
# Events

This page is written by `python -m costopt.cli.event_reference > docs/events.md` from the event
classes; a test compares the two. The ledger is a list of these events; cost, energy, progress and
lost work are folds over it. `costopt events` prints them, `costopt events --output json` and the
daemon's API with their fields. Each has `at`, when it was recorded, and `job`. Times are UTC, money
is integer micro-dollars, power watts; `None` is unknown.
"""


def event_reference() -> str:
    """Return the whole page."""
    events = sorted(EVENT_TYPES, key=lambda event: event.__name__)
    return "\n".join([HEAD, *(line for event in events for line in _section(event))])


def _section(event: type[Event]) -> Iterator[str]:
    own = [field for field in fields(event) if field.name not in Event.__dataclass_fields__]
    text = " ".join((inspect.getdoc(event) or "").replace("``", "`").split())
    yield from (f"## {event.kind}", "", text, "")
    if own:
        yield from ("| field | type |", "|---|---|")
    for field in own:
        optional = field.default is not MISSING or field.default_factory is not MISSING
        kind = str(field.type).replace("|", "\\|")
        yield f"| `{field.name}` | {kind}{', optional' if optional else ''} |"
    if own:
        yield ""


if __name__ == "__main__":
    sys.stdout.write(event_reference())
