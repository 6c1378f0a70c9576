"""Models of answers: a view's fields and public properties, and nothing that JSON cannot say."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, ValidationError

from costopt.daemon.http.requests import ModeRequest, PriorityRequest, SubmitRequest, TokenRequest
from costopt.daemon.http.schemas import model_of, to_json
from costopt.daemon.shared_state import Alert, FleetNode
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.domain.control import Halt
from costopt.domain.events import EVENT_TYPES, DecisionMade, Event
from costopt.domain.fleet import NodeState
from costopt.ledger.job_account import JobAccount
from costopt.ledger.summary import JobSummary

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODE = FleetNode("i-1", "one", "blue", "a/b/c/d/spot", NodeState.RUNNING, NOW, 1.5, False, None)


def test_a_view_has_its_fields_and_public_properties() -> None:
    summary = to_json(JobAccount("one").summary(NOW))
    assert {field.name for field in fields(JobSummary)} < set(summary)
    assert {"usd", "kwh", "done_share", "saved_usd_share"} <= set(summary)
    assert to_json(Halt("odd", "ann", NOW)) == {
        "reason": "odd", "who": "ann", "at": "2026-03-01T12:00:00Z",
        "message": Halt("odd", "ann", NOW).message,
    }  # fmt: skip


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda event: event.kind)
def test_an_event_has_its_kind_and_its_fields(event: type[Event]) -> None:
    assert set(model_of(event).model_fields) == {"kind", *(field.name for field in fields(event))}


def test_an_event_is_written_as_json_has_it() -> None:
    decision = DecisionMade(
        at=NOW, job="one", decision_id="one-d1", targets=(("pool", 1),), reason="so",
        alternatives=(("wait", None, "idle"),),
    )  # fmt: skip
    reported = to_json(decision)
    assert (reported["kind"], reported["at"]) == ("DecisionMade", "2026-03-01T12:00:00Z")
    assert json.loads(json.dumps(reported))["alternatives"] == [["wait", None, "idle"]]


@pytest.mark.parametrize("usd", [math.inf, -math.inf, math.nan])
def test_a_figure_that_is_not_finite_is_unknown(usd: float) -> None:
    assert to_json(replace(NODE, usd_per_hour=usd))["usd_per_hour"] is None


def test_a_text_that_cannot_be_encoded_is_still_answered() -> None:
    alert = Alert(1, NOW, AlertKind.TROUBLE, "one", "cannot read \udcff.txt")
    assert to_json(alert)["message"].encode().decode() == "cannot read \ufffd.txt"


@pytest.mark.parametrize(
    ("of", "body"),
    [
        (ModeRequest, {"mode": "observe", "more": 1}),
        (PriorityRequest, {"priority": "2"}),
        (PriorityRequest, {"priority": True}),
        (PriorityRequest, {"priority": 2.5}),
        (SubmitRequest, {"job": "x", "anyway": 1}),
        (SubmitRequest, {"job": b"x" * 300_000}),
        (TokenRequest, {"name": "x", "scopes": "read"}),
        (TokenRequest, {"name": "x\n", "scopes": []}),
    ],
    ids=range(8),
)
def test_a_request_of_another_shape_is_refused(of: type[BaseModel], body: object) -> None:
    with pytest.raises(ValidationError):
        of.model_validate(body)


def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    assert PriorityRequest.model_validate({"priority": 2.0}).priority == 2
