"""Where the daemon listens, and what it tells of its own accord."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from threading import Event

import pytest

from costopt.daemon.http import server
from costopt.daemon.http.server import IdleTimeoutProtocol, bind_listeners, bind_tcp, bind_unix
from costopt.daemon.reader import TenantReader
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import Health
from costopt.daemon.watch import notifications as telling_module
from costopt.daemon.watch.notifications import NotificationConfig, run_notifiers
from costopt.daemon.watch.webhooks import Webhook, Webhooks
from costopt.domain.control import Mode
from costopt.domain.errors import LedgerError, SpecError
from tests.support.daemon_api import served
from tests.support.daemon_pages import shown
from tests.support.errors import has_code
from tests.support.live_run import PATIENCE_S

SOON_S = 1.0
"""In which a client that does nothing else sends a head, also where the machine is busy."""


def test_a_socket_that_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    bind_unix(path).close()
    assert path.is_socket()
    with bind_unix(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_daemon_that_answers_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with bind_unix(path), pytest.raises(LedgerError, check=has_code("in_use")):
        bind_unix(path)


def test_a_path_that_cannot_be_a_socket_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SpecError, check=has_code("not_a_socket")):
        bind_unix(tmp_path / "file")
    with pytest.raises(SpecError, check=has_code("too_long")):
        bind_unix(tmp_path / ("x" * 108))
    with pytest.raises(SpecError, match=os.strerror(errno.ENOENT).lower()):
        bind_unix(tmp_path / "missing" / "s")


@pytest.mark.parametrize("place", ["", "x", ":80", "h:x", "h:99999", "127.0.0.1:", "h:²"])
def test_a_malformed_place_is_refused(place: str) -> None:
    with pytest.raises(SpecError, check=has_code("invalid_address")):
        bind_tcp(place)


def test_a_port_that_is_taken_is_refused() -> None:
    with bind_tcp("127.0.0.1:0") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SpecError, match=os.strerror(errno.EADDRINUSE).lower()) as refused:
            bind_tcp(f"127.0.0.1:{port}")
        assert "--listen" in str(refused.value.hint)


def test_ipv6_is_a_place_too() -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6: it was not tried")
    try:
        listener = bind_tcp("[::1]:0")
    except SpecError as error:
        pytest.skip(f"no IPv6 on this machine: {error.message}")
    with listener:
        assert listener.family is socket.AF_INET6


def test_events_and_alerts_are_reported_while_the_daemon_runs_and_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling_module, "STOP_TIMEOUT_S", PATIENCE_S)
    sent, arrived = [], Event()

    def send(url: str, body: bytes, headers: dict[str, str]) -> int:
        sent.append(body)
        arrived.set()
        return 200

    hooks = Webhooks([Webhook("h", "http://h/")], send=send)
    caplog.set_level(logging.INFO, "costopt.events")
    with (
        served(tmp_path, fill=False) as daemon,
        run_notifiers(daemon.service, 1, NotificationConfig(hooks, events=True)),
    ):
        daemon.fill()
    assert arrived.is_set()
    assert len(sent) == 1
    reported = [r.message for r in caplog.records if r.name == "costopt.events"]
    assert reported == ["one: NodeLaunched", "one: GuardTripped"]


def test_a_receiver_that_does_not_answer_delays_no_other(tmp_path: Path) -> None:
    arrived, ended = Event(), Event()

    def send(url: str, body: bytes, headers: dict[str, str]) -> int:
        if url == "http://slow/":
            ended.wait(PATIENCE_S)
        else:
            arrived.set()
        return 200

    hooks = Webhooks([Webhook("s", "http://slow/"), Webhook("h", "http://h/")], send=send)
    with served(tmp_path) as daemon, run_notifiers(daemon.service, 1, NotificationConfig(hooks)):
        others = arrived.wait(PATIENCE_S)
        ended.set()
    assert others


@pytest.mark.parametrize(
    ("sent", "response"),
    [
        (b"", b""),
        (b"GET /healthz HT", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),
    ],
)
def test_a_client_that_never_finishes_a_head_is_let_go(
    tmp_path: Path, sent: bytes, response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", SOON_S)
    with served(tmp_path) as daemon:
        host, _, port = daemon.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
            client.sendall(sent)
            received = b""
            while piece := client.recv(4096):
                received += piece
        assert received[: len(b"HTTP/1.1 200")] == response


def test_a_client_that_never_takes_its_answers_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SEND_TIMEOUT_S", 0.2)
    asks = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500_000
    with served(tmp_path) as daemon:
        host, _, port = daemon.url.removeprefix("http://").partition(":")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(PATIENCE_S)
            client.connect((host, int(port)))
            with pytest.raises(ConnectionError):
                client.sendall(asks)


def test_an_answer_that_takes_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = Event(), IdleTimeoutProtocol._close_if_idle_since

    def noted(protocol: IdleTimeoutProtocol, cycle: object) -> None:
        look(protocol, cycle)
        looked.set()

    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", SOON_S)
    monkeypatch.setattr(IdleTimeoutProtocol, "_close_if_idle_since", noted)
    with served(tmp_path) as daemon:
        asked = daemon.service.mode

        def slowly() -> Mode:
            assert looked.wait(PATIENCE_S)
            return asked()

        monkeypatch.setattr(daemon.service, "mode", slowly)
        assert daemon.local.get("mode") == {"mode": "observe"}


FORM = (
    b"POST /login HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\n"
)
WAITING = (b"", b"GET /heal", FORM)


@pytest.mark.parametrize("sent", WAITING)
def test_clients_that_never_finish_a_request_keep_no_one_out(tmp_path: Path, sent: bytes) -> None:
    with shown(tmp_path) as daemon, ExitStack() as held:
        host, _, port = daemon.url.removeprefix("http://").partition(":")
        for _ in range(server.MAX_CONNECTIONS + 20):
            client = held.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
            client.sendall(sent)
        for _ in range(3):
            asking = HTTPConnection(host, int(port), timeout=PATIENCE_S)
            held.callback(asking.close)
            asking.request("GET", "/healthz")
            assert asking.getresponse().status == 200


def test_a_form_that_is_cut_off_is_not_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with shown(tmp_path) as daemon:
        host, _, port = daemon.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as client:
            client.sendall(FORM + b"tok")
            client.shutdown(socket.SHUT_WR)
            client.recv(4096)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_request_that_is_worked_on_keeps_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, crowded = Event(), Event()
    with served(tmp_path) as daemon, ExitStack() as held:
        health = TenantReader.health

        def slowly(reader: TenantReader) -> Health:
            begun.set()
            assert crowded.wait(PATIENCE_S)
            return health(reader)

        monkeypatch.setattr(TenantReader, "health", slowly)
        host, _, port = daemon.url.removeprefix("http://").partition(":")
        for more in ({}, {"Connection": "close"}):
            begun.clear()
            crowded.clear()
            asking = HTTPConnection(host, int(port), timeout=PATIENCE_S)
            held.callback(asking.close)
            asking.request("GET", "/healthz", headers=more)
            assert begun.wait(PATIENCE_S)
            for _ in range(server.MAX_CONNECTIONS + 20):
                held.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
            crowded.set()
            assert asking.getresponse().status == 200


@pytest.mark.parametrize("listen", [None, "127.0.0.1:0", "unix"])
def test_there_is_a_socket_wherever_the_daemon_listens(tmp_path: Path, listen: str | None) -> None:
    path = tmp_path / ("daemon.sock" if listen != "unix" else "s")
    settings = DaemonSettings(tmp_path, listen=f"unix:{path}" if listen == "unix" else listen)
    with bind_listeners(settings) as listeners:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert listeners.places()[0] == f"unix:{path}"
        assert (listeners.network is None) == (listen != "127.0.0.1:0")
