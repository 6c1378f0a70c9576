"""The log: lines of JSON that lead from what happened to its decision, and hold no secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costopt.client.client import ApiError
from costopt.daemon.watch import notifications
from costopt.daemon.watch.json_log import log_as_json
from costopt.daemon.watch.notifications import EventLogWriter
from costopt.domain.control import Scope
from costopt.domain.events import DecisionMade, GuardTripped
from tests.support.daemon_api import served
from tests.support.market_fixtures import T0


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    root, own = logging.getLogger(), logging.getLogger("costopt")
    before = (root.handlers, root.level, own.level)
    stream = io.StringIO()
    log_as_json(stream)
    yield stream
    root.handlers = before[0]
    root.setLevel(before[1])
    own.setLevel(before[2])


def lines(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_record_is_one_line_with_what_it_carries(written: io.StringIO) -> None:
    log = logging.getLogger("costopt.x")
    log.info("two\nlines %d", 7, extra={"job": "one", "nothing": None})
    try:
        raise KeyError("boom")
    except KeyError:
        log.exception("it broke")
    first, second = lines(written)
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "info", "logger": "costopt.x", "message": "two\nlines 7", "job": "one"
    }  # fmt: skip
    assert "KeyError: 'boom'" in second["error"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("token costopt_0123456789abcdef_" + "ab" * 32, "ab" * 32),
        ("Authorization: Bearer abcdef", "abcdef"),
        ("postgresql://user:pass-word@db/costopt", "pass-word"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "xyz"),
    ],
)
def test_secrets_are_left_out(written: io.StringIO, text: str, secret: str) -> None:
    log = logging.getLogger("costopt.x")
    log.info(text)
    log.info("x", extra={"deep": {"down": [text]}})
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("it broke")
    assert secret not in written.getvalue()
    assert len(lines(written)) == 3


def test_events_carry_the_decision_that_they_follow(written: io.StringIO, tmp_path: Path) -> None:
    with served(tmp_path) as daemon:
        follower = EventLogWriter(daemon.ledger)
        follower.follow()
        follower.follow()
    reported = [line for line in lines(written) if line["logger"] == "costopt.events"]
    assert [(line["event"], line["decision_id"], line["level"]) for line in reported] == [
        ("DecisionMade", "one-d1", "info"),
        ("NodeLaunched", "one-d1", "info"),
        ("GuardTripped", "one-d1", "warning"),
    ]
    assert reported[1]["fields"]["node_id"] == "i-1"


def test_the_last_decision_is_remembered_of_jobs_that_something_happens_to(
    monkeypatch: pytest.MonkeyPatch, written: io.StringIO, tmp_path: Path
) -> None:
    monkeypatch.setattr(notifications, "MAX_JOBS", 2)
    with served(tmp_path, fill=False) as daemon:
        for job in ("a", "b", "a", "c", "b", "a"):
            said = GuardTripped(at=T0, job=job, guard="budget", message="spent")
            decided = DecisionMade(at=T0, job=job, decision_id=f"{job}-d1", targets=(), reason="so")
            known = [each.event.job for each in daemon.ledger.events()]
            daemon.ledger.append(said if job in known else decided)
        EventLogWriter(daemon.ledger).follow()
    reported = [line for line in lines(written) if line["logger"] == "costopt.events"]
    decisions = [line.get("decision_id") for line in reported]
    assert decisions == ["a-d1", "b-d1", "a-d1", "c-d1", None, "a-d1"]


def test_what_is_reported_over_the_network_is_logged_with_who_and_no_token(
    written: io.StringIO, tmp_path: Path
) -> None:
    with served(tmp_path) as daemon:
        token = daemon.token(Scope.ADMIN)
        daemon.bearer(Scope.ADMIN).send("PUT", "halt", body={"reason": "odd"})
        made = daemon.local.send("POST", "tokens", body={"name": "n", "scopes": ["read"]})["token"]
        with pytest.raises(ApiError):
            daemon.local.get("jobs", token)
    reported = [line for line in lines(written) if line["logger"] == "costopt.daemon.api"]
    assert (reported[0]["operation"], reported[0]["who"]) == ("halt", "t1")
    assert made not in written.getvalue()
    assert token not in written.getvalue()
