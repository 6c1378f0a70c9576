"""Every event, whatever it holds, comes back from its line of JSON as it was."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costopt.domain.events import EVENT_TYPES, Event
from costopt.ledger.codec import decode, encode

TIMES = st.datetimes(timezones=st.just(UTC))
st.register_type_strategy(datetime, TIMES)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def events_of(event_type: type[Event]) -> st.SearchStrategy[Event]:
    return st.from_type(event_type)


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda t: t.__name__)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_an_event_survives_the_codec(event_type: type[Event], data: st.DataObject) -> None:
    event = data.draw(events_of(event_type))
    line = encode(event)
    assert line.isascii()
    assert "\n" not in line
    assert decode(line) == event
    assert type(decode(line)) is event_type
