"""Every event, whatever it holds, comes back from its line of JSON as it was."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costopt.domain.errors import LedgerError
from costopt.domain.events import EVENT_TYPES, Event, JobFailed
from costopt.domain.text import encodable_text
from costopt.ledger.codec import decode, encode

ANY_TEXT = st.text(st.characters())
"""With NUL, control characters and lone surrogates."""
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.datetimes(),
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner, inner) | st.sets(st.integers()),
    max_leaves=4,
)
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


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda t: t.__name__)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_written_can_be_read_back_and_shown(
    event_type: type[Event], data: st.DataObject
) -> None:
    """Whatever a field holds, it is refused or comes back; of a text, what UTF-8 can hold."""
    event = data.draw(events_of(event_type))
    name = data.draw(st.sampled_from([field.name for field in fields(event_type)]))
    event = replace(event, **{name: data.draw(ANYTHING)})  # type: ignore[arg-type]
    try:
        line = encode(event)
    except LedgerError:
        return
    read = decode(line)
    assert decode(encode(read)) == read
    repr(read).encode()
    if type(getattr(event, name)) is str:
        assert getattr(read, name) == encodable_text(getattr(event, name))
    else:
        assert read == event


def test_a_line_with_a_lone_surrogate_reads_as_text_that_can_be_shown() -> None:
    line = encode(JobFailed(at=datetime(2026, 1, 1, tzinfo=UTC), job="j", message="X"))
    read = decode(line.replace('"X"', '"\\ud800"'))
    assert isinstance(read, JobFailed)
    read.message.encode()
