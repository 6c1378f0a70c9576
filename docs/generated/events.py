"""The page of the ledger's events, from their classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields

from costopt.domain.events import EVENT_TYPES, Event

HEAD = """\
# Events

The ledger is a list of these events; cost, energy, progress and
lost work are folds over it. `costopt events` prints them, `costopt events --output json` and the
daemon's API with their fields. Each has `at`, when it was recorded, and `job`. Times are UTC, money
is integer micro-dollars, power watts; `None` is unknown.
"""


def events_page() -> str:
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
