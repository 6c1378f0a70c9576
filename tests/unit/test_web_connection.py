"""Downloads, webhooks and comments go by way of the same proxies."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from http.client import HTTPException
from urllib.parse import urlsplit

import pytest

from costopt.client.review_comments import CommentError, GitHubThread
from costopt.daemon.watch.webhooks import post
from costopt.domain.errors import DownloadError
from costopt.download import Downloader, DownloadLimits
from costopt.web_connection import connect_to
from tests.support.web_proxy import WebProxy, web_proxy

VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


def fetch(url: str) -> None:
    Downloader(DownloadLimits(total_s=5)).fetch(url, 1000, {})


def deliver(url: str) -> None:
    post(url, b'{"text": "hello"}', {"Content-Type": "application/json"})


def comment(url: str) -> None:
    GitHubThread(url, "o/r", 7, "token").add("text")


SENDERS: dict[str, Callable[[str], None]] = {
    "download": fetch,
    "webhook": deliver,
    "comment": comment,
}
ERRORS = (OSError, HTTPException, DownloadError, CommentError)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebProxy]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with web_proxy() as proxy:
        proxy.body = b'{"id": 1}'
        yield proxy


@pytest.fixture(params=SENDERS)
def send(request: pytest.FixtureRequest) -> Callable[[str], None]:
    return SENDERS[request.param]


def test_http_goes_to_the_proxy(
    proxy: WebProxy, send: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("//", "//me:p%40ss@"))
    send("http://server.example.test/path")
    (asked,) = proxy.requests
    assert asked.split()[1].startswith("http://server.example.test/path")
    assert proxy.headers[0]["Host"] == "server.example.test"
    assert base64.b64decode(proxy.headers[0]["Proxy-Authorization"].split()[1]) == b"me:p@ss"


def test_https_goes_through_a_tunnel(
    proxy: WebProxy, send: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//me:secret@"))
    with pytest.raises(ERRORS, match="502"):
        send("https://server.example.test/path")
    assert proxy.requests == ["CONNECT server.example.test:443"]
    assert "Authorization" not in proxy.headers[0]
    assert "Proxy-Authorization" in proxy.headers[0]


def test_a_proxy_may_be_named_without_a_scheme(
    proxy: WebProxy, send: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    send("http://server.example.test/path")
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("named", ["socks5://127.0.0.1:9", "http://", "http://127.0.0.1:none"])
def test_other_proxies_are_an_error_and_not_passed_by(
    named: str, proxy: WebProxy, send: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", named)
    with pytest.raises(ERRORS, match=r"(?i)proxy|port"):
        send("http://server.example.test/path")
    assert not proxy.requests


@pytest.mark.parametrize(
    ("url", "excluded", "is_direct"),
    [
        ("http://localhost:9/", "", True),
        ("http://127.0.0.1:9/", "", True),
        ("http://[::1]:9/", "", True),
        ("http://inside.example.test/", ".example.test", True),
        ("http://inside.example.test/", "example.test", True),
        ("http://inside.example.test:8080/", "inside.example.test:8080", True),
        ("http://inside.example.test:8081/", "inside.example.test:8080", False),
        ("http://inside.example.test/", "*", True),
        ("http://outside.example.org/", ".example.test", False),
        ("https://outside.example.org/", "", True),  # there is no proxy of https
    ],
)
def test_what_is_reached_directly(
    url: str, excluded: str, is_direct: bool, proxy: WebProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", excluded)
    connection, _ = connect_to(urlsplit(url), 1.0, {})
    assert (connection.port == proxy.port) is not is_direct
