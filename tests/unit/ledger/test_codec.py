"""The line of JSON: what it looks like, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event, NodeEnded, ProgressReported
from costopt.domain.fleet import EndCause
from costopt.ledger.codec import decode, encode

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENDED = NodeEnded(
    at=AT,
    job="job",
    node_id="n1",
    pool="p",
    ended_at=AT - timedelta(microseconds=1),
    cause=EndCause.INTERRUPTED,
)


def edited(**changes: object) -> str:
    return json.dumps(json.loads(encode(ENDED)) | changes)


def test_an_event_is_one_flat_object() -> None:
    assert json.loads(encode(ENDED)) == {
        "v": 1,
        "kind": "NodeEnded",
        "at": "2026-01-01T12:00:00+00:00",
        "job": "job",
        "node_id": "n1",
        "pool": "p",
        "ended_at": "2026-01-01T11:59:59.999999+00:00",
        "cause": "interrupted",
        "message": "",
        "estimated": False,
    }


def test_a_time_of_another_zone_is_kept_as_utc() -> None:
    local = AT.astimezone(timezone(timedelta(hours=2)))
    event = ProgressReported(at=local, job="job", done_units=1, saved_units=0)
    assert json.loads(encode(event))["at"] == "2026-01-01T12:00:00+00:00"


def test_a_field_with_a_default_may_be_missing() -> None:
    body = json.loads(encode(ProgressReported(at=AT, job="j", done_units=1.0, saved_units=0.0)))
    del body["units_per_s"]
    decoded = decode(json.dumps(body))
    assert isinstance(decoded, ProgressReported)
    assert decoded.units_per_s is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "is not JSON"),
        ("[1]", "not a JSON object"),
        (edited(v=99), "schema version 99 is newer than 1"),
        (edited(v=None), "schema version None"),
        (edited(kind="NodeTeleported"), "unknown kind of event: 'NodeTeleported'"),
        (edited(colour="red"), "NodeEnded has unknown fields: colour"),
        (edited(cause="bored"), "NodeEnded.cause cannot be read: 'bored'"),
        (edited(at="2026-01-01T12:00:00"), "NodeEnded.at cannot be read: .* has no zone"),
        (edited(at=5), "NodeEnded.at cannot be read"),
        (edited(node_id=5), "NodeEnded.node_id cannot be read: 5 is not a text"),
        (encode(ENDED).replace('"node_id":"n1",', ""), "NodeEnded lacks its field node_id"),
        (
            '{"v":1,"kind":"ProgressReported","at":"2026-01-01T12:00:00+00:00","job":"j",'
            '"done_units":NaN,"saved_units":0}',
            "done_units cannot be read: nan is not a finite number",
        ),
    ],
)
def test_a_line_that_cannot_be_understood_is_refused_with_advice(line: str, message: str) -> None:
    with pytest.raises(LedgerError, match=message) as caught:
        decode(line)
    assert caught.value.hint


@pytest.mark.parametrize(
    "event",
    [
        ProgressReported(at=AT, job="j", done_units=float("nan"), saved_units=0.0),
        ProgressReported(at=AT.replace(tzinfo=None), job="j", done_units=0.0, saved_units=0.0),
        Event(at=AT, job="j"),
    ],
)
def test_an_event_that_could_not_be_read_back_is_not_written(event: Event) -> None:
    with pytest.raises(LedgerError):
        encode(event)
