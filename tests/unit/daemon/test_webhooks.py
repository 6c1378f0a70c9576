"""Webhooks: signed, sent again until they arrive, in order, and no receiver holds up another."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from costopt.daemon.shared_state import Alert
from costopt.daemon.watch import webhooks
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.daemon.watch.webhooks import (
    DELIVERY_TTL_S,
    MAX_BACKOFF_S,
    SIGNATURE,
    Webhook,
    WebhookFormat,
    Webhooks,
    post,
    read_webhooks,
)
from costopt.domain.errors import SpecError
from tests.support.node_folder import ROOT

AT = datetime(2026, 5, 1, tzinfo=UTC)
SECRET = "0123456789abcdef"


def alerts(*messages: str, kind: AlertKind = AlertKind.BUDGET) -> tuple[Alert, ...]:
    return tuple(Alert(i, AT, kind, "one", text) for i, text in enumerate(messages, start=1))


class AlertSource:
    """Alerts as the board gives them."""

    def __init__(self, *given: Alert) -> None:
        self.given = given

    def __call__(self, after: int) -> tuple[Alert, ...]:
        return tuple(each for each in self.given if each.seq > after)


def deliver(hooks: Webhooks, reported: AlertSource) -> None:
    """To each receiver, one after the other."""
    for line in hooks.lines:
        hooks.deliver(line, reported)


@dataclass
class Receiver:
    """What arrived, and what is answered."""

    url: str
    statuses: list[int] = field(default_factory=list)
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A web server on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            here.got.append((self.path, dict(self.headers), body))
            self.send_response(here.statuses.pop(0) if here.statuses else 204)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    here = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Wall:
    """Unix time that a test moves."""

    def __init__(self) -> None:
        self.at_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at_s


def test_an_alert_arrives_signed() -> None:
    with receiver() as here:
        hook = Webhook("h", f"{here.url}/in?x=1", secret=SECRET)
        hooks = Webhooks([hook], instance="d1", wall=Wall())
        deliver(hooks, AlertSource(*alerts("spent")))
        deliver(hooks, AlertSource(*alerts("spent")))
    ((path, headers, body),) = here.got
    assert path == "/in?x=1"
    assert json.loads(body) == {
        "id": "d1-1800000000-1",
        "kind": "budget",
        "job": "one",
        "message": "spent",
        "at": "2026-05-01T00:00:00Z",
        "daemon": "d1",
    }
    mac = hmac.new(SECRET.encode(), b"1800000000." + body, hashlib.sha256).hexdigest()
    assert headers[SIGNATURE] == f"t=1800000000,v1={mac}"
    assert hooks.deliveries() == {("h", "ok"): 1}


def test_slack_gets_its_text_with_nothing_of_it_taken_for_markup() -> None:
    with receiver() as here:
        hooks = Webhooks([Webhook("h", here.url, WebhookFormat.SLACK)])
        deliver(hooks, AlertSource(*alerts("<!channel> a & b")))
    ((_, headers, body),) = here.got
    assert json.loads(body) == {"text": "*costopt budget* (one): &lt;!channel&gt; a &amp; b"}
    assert SIGNATURE not in headers


@pytest.mark.parametrize("status", [500, 404, 302])
def test_what_was_not_taken_is_sent_again_in_order(status: int) -> None:
    wall = Wall()
    with receiver() as here:
        here.statuses = [status, status, 200]
        hooks = Webhooks([Webhook("h", here.url)], wall=wall)
        reported = AlertSource(*alerts("first", "second"))
        deliver(hooks, reported)
        deliver(hooks, reported)
        assert len(here.got) == 1
        for _ in range(3):
            wall.at_s += MAX_BACKOFF_S
            deliver(hooks, reported)
    messages = [json.loads(body)["message"] for _, _, body in here.got]
    assert messages == ["first", "first", "first", "second"]
    assert hooks.deliveries() == {("h", "failed"): 2, ("h", "ok"): 2}


def test_pauses_grow_up_to_a_limit() -> None:
    wall, tries = Wall(), []

    def refuse(url: str, body: bytes, headers: dict[str, str]) -> int:
        tries.append(wall.at_s)
        raise ConnectionRefusedError

    hooks = Webhooks([Webhook("h", "http://h/")], send=refuse, wall=wall)
    reported = AlertSource(*alerts("spent"))
    while wall.at_s < Wall().at_s + 2 * 3600:
        deliver(hooks, reported)
        wall.at_s += 1
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses[0] <= 6
    assert all(MAX_BACKOFF_S / 2 <= pause <= MAX_BACKOFF_S + 1 for pause in pauses[9:])


def test_an_alert_that_is_refused_for_a_day_is_dropped_and_the_next_one_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wall, got = Wall(), []

    def picky(url: str, body: bytes, headers: dict[str, str]) -> int:
        got.append(json.loads(body)["message"])
        return 400 if got[-1] == "first" else 200

    hooks = Webhooks([Webhook("h", "http://h/")], send=picky, wall=wall)
    reported = AlertSource(*alerts("first", "second"))
    deliver(hooks, reported)
    wall.at_s += DELIVERY_TTL_S
    with caplog.at_level(logging.ERROR):
        deliver(hooks, reported)
    assert got == ["first", "first", "second"]
    assert "an alert was dropped" in caplog.text


def test_a_receiver_that_fails_holds_up_no_other_and_is_reported_without_its_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with receiver() as here:
        bad = Webhook("bad", "http://127.0.0.1:1/very-secret-path")
        hooks = Webhooks([bad, Webhook("good", here.url)])
        deliver(hooks, AlertSource(*alerts("spent")))
    assert len(here.got) == 1
    assert "webhook bad: ConnectionRefusedError" in caplog.text
    assert "very-secret-path" not in caplog.text


def test_a_receiver_that_drips_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "DELIVERY_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = Thread(target=_drip, args=[listener])
        dripping.start()
        with pytest.raises((OSError, HTTPException)):
            post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {})
        dripping.join()


@pytest.mark.parametrize("response", [b"", b"HTTP/1.1", b"220 mail.example.com\r\n", b"x" * 99_999])
def test_what_is_not_a_response_of_a_web_server_is_reported_as_such(response: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = Thread(target=_answer, args=[listener, response])
        answering.start()
        with pytest.raises((OSError, HTTPException)):
            post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {})
        answering.join()


def _drip(listener: socket.socket) -> None:
    """Never ends its answer by itself."""
    taken, _ = listener.accept()
    with taken, suppress(OSError):
        while True:
            taken.sendall(b"H")
            time.sleep(0.05)


def _answer(listener: socket.socket, response: bytes) -> None:
    taken, _ = listener.accept()
    with taken, suppress(OSError):
        taken.sendall(response)
        taken.shutdown(socket.SHUT_WR)
        while taken.recv(4096):
            pass


def test_only_the_kinds_that_were_asked_for_are_sent() -> None:
    with receiver() as here:
        hooks = Webhooks([Webhook("h", here.url, kinds=frozenset({"halt"}))])
        budget, halt = alerts("spent")[0], Alert(2, AT, AlertKind.HALT, "", "stop")
        deliver(hooks, AlertSource(budget, halt))
    assert [json.loads(body)["kind"] for _, _, body in here.got] == ["halt"]


def test_a_file_names_the_receivers(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    file = tmp_path / "webhooks.yaml"
    file.write_text(
        "webhooks:\n"
        "  - {url: https://hooks.slack.com/services/T/B/X, form: slack}\n"
        "  - url: https://ops.example.com/a\n"
        f"    secret_file: {tmp_path / 'secret'}\n"
        "    kinds: [halt]\n"
        "  - {url: https://ops.example.com/b}\n"
    )
    slack, first, second = read_webhooks(str(file))
    assert (slack.name, slack.form, slack.secret) == ("hooks.slack.com", WebhookFormat.SLACK, None)
    assert (first.name, first.secret, first.wants("halt"), first.wants("budget")) == (
        "ops.example.com", SECRET, True, False
    )  # fmt: skip
    assert second.name == "ops.example.com#2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("webhooks: {}", "expected a list named webhooks"),
        ("webhooks: []\nmore: 1", "expected a list named webhooks"),
        ("webhooks: [x]", "expected fields and values"),
        ("webhooks: [{url: 'ftp://x'}]", "url: expected https://"),
        ("webhooks: [{url: 'http://x:99999/'}]", "url: expected https://"),
        ("webhooks: [{url: 'http://x/ y'}]", "url: expected https://"),
        ("webhooks: [{uri: 'http://x'}]", "unknown field 'uri'"),
        ("webhooks: [{url: 'http://x', form: teams}]", "form: expected generic or slack"),
        ("webhooks: [{url: 'http://x', secret: short}]", "shorter than 16"),
        ("webhooks: [{url: 'http://x', secret_file: /nowhere}]", "no such file"),
        ("webhooks: [{url: 'http://x', kinds: [all]}]", "kinds: expected a list of"),
        ("webhooks: !!python/object/apply:os.getcwd []", "webhooks"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "webhooks.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as refusal:
        read_webhooks(str(file))
    assert said in refusal.value.message
    assert "short" not in refusal.value.message.replace("shorter", "")


def test_receivers_can_select_every_kind_of_alert_and_the_page_lists_them(tmp_path: Path) -> None:
    file = tmp_path / "webhooks.yaml"
    file.write_text(f"webhooks: [{{url: 'http://x', kinds: [{', '.join(AlertKind)}]}}]")
    assert read_webhooks(str(file))[0].kinds == set(AlertKind)
    page = (ROOT / "docs" / "daemon.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \| ", page.partition("an alert is raised when")[2], re.M)
    assert listed == list(AlertKind)
