"""Under which names the daemon answers over the network."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.daemon.http.app import build_app
from costopt.daemon.http.server import ApiServer, bind_tcp, bind_unix
from tests.support.daemon_api import Served, served
from tests.support.live_run import PATIENCE_S

NAMES = ("costopt.example.com", "*.run.app")
KNOWN = [
    "localhost", "LocalHost:8420", "localhost.", "127.0.0.1:8420", "127.9.9.9", "[::1]:8420",
    "10.0.0.5", "costopt.example.com", "Costopt.Example.Com:443", "daemon-abc.run.app", "",
]  # fmt: skip
UNKNOWN = [
    "evil.example", "localhost.evil.example", "run.app", "x.run.app.evil.example", "example.com",
    "x.costopt.example.com", "127.0.0.1.evil.example", "127.1.evil", "evil.example:8420",
]  # fmt: skip


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests here: none changes it."""
    with served(tmp_path_factory.mktemp("daemon")) as one:
        yield one


@pytest.fixture(scope="module")
def address(daemon: Served) -> Iterator[tuple[str, int]]:
    """Where it is asked from the network under ``NAMES``."""
    local, network = bind_unix(daemon.socket_path.with_name("other")), bind_tcp("127.0.0.1:0")
    host, port = network.getsockname()[:2]
    server = ApiServer(build_app(daemon.context), local, network, NAMES)
    server.start()
    yield host, port
    server.stop()


def status(address: tuple[str, int], host: str, path: str = "/openapi.json") -> int:
    """As the network is answered that asks under this name."""
    with socket.create_connection(address, PATIENCE_S) as client:
        version = "1.1" if host else "1.0"
        head = f"GET {path} HTTP/{version}\r\nConnection: close\r\n"
        client.sendall((head + (f"Host: {host}\r\n" if host else "") + "\r\n").encode())
        return int(client.makefile("rb").readline().split()[1])


@pytest.mark.parametrize("host", KNOWN)
def test_it_answers_under_its_own_names(address: tuple[str, int], host: str) -> None:
    assert status(address, host) == 200


@pytest.mark.parametrize("host", UNKNOWN)
def test_no_page_of_another_site_reaches_it_under_that_sites_name(
    address: tuple[str, int], host: str
) -> None:
    assert status(address, host) in (400, 421)
    assert status(address, host, "/v1/jobs") in (400, 421)


def test_probes_may_ask_under_any_name(address: tuple[str, int]) -> None:
    assert status(address, "probe.internal", "/healthz") == 200
    assert status(address, "probe.internal", "/readyz") in (200, 503)


def test_the_socket_is_asked_under_any_name(daemon: Served) -> None:
    asking = HTTPConnection("any.example")
    asking.sock = socket.socket(socket.AF_UNIX)
    asking.sock.connect(str(daemon.socket_path))
    asking.request("GET", "/v1/jobs")
    assert asking.getresponse().status == 200
    asking.close()


@pytest.mark.parametrize("name", ["https://x", "x:80", "*", "x/y", "", "a*.b", "*.*.b"])
def test_what_is_not_a_name_is_refused(name: str) -> None:
    done = CliRunner().invoke(cli, ["daemon", "--allowed-host", name])
    assert done.exit_code == 2
    assert "--allowed-host" in done.stderr
