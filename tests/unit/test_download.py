"""Downloads: conditional requests, one other host, and the limits on size, time and redirects."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from costopt.domain.errors import DownloadError
from costopt.download import Download, Downloader, DownloadLimits
from tests.support.price_lists import (
    Answer,
    PriceListServer,
    drip,
    gzipped,
    serve_price_lists,
    stall,
)

USUAL = DownloadLimits()
KIB = 1024


@pytest.fixture
def server() -> Iterator[PriceListServer]:
    with serve_price_lists() as server:
        yield server


def get(
    server: PriceListServer, response: Answer, max_bytes: int = KIB, limits: DownloadLimits = USUAL
) -> Download | None:
    server.answers["/list"] = response
    return Downloader(limits).get([f"{server.url}/list"], max_bytes)


def refusal(
    server: PriceListServer, response: Answer, max_bytes: int = KIB, limits: DownloadLimits = USUAL
) -> str:
    with pytest.raises(DownloadError) as caught:
        get(server, response, max_bytes, limits)
    assert f"{server.url}/list" in caught.value.message
    return caught.value.message


def redirect(to: str) -> Answer:
    return Answer(status=302, headers={"Location": to})


def test_a_plain_and_a_compressed_file_are_the_same(server: PriceListServer) -> None:
    plain = get(server, Answer(b"a,b\n", headers={"ETag": '"1"'}))
    packed = get(server, gzipped(b"a,b\n"))
    assert plain is not None
    assert packed is not None
    assert plain.body == packed.body == b"a,b\n"
    assert plain.etag == '"1"'
    assert plain.sha256 == packed.sha256


def test_an_unchanged_file_is_not_sent_again(server: PriceListServer) -> None:
    server.answers["/list"] = Answer(b"x", headers={"ETag": '"1"'})
    url = f"{server.url}/list"
    assert Downloader().get([url], KIB, etag='"1"', etag_url=url) is None
    other = Downloader().get([url], KIB, etag='"1"', etag_url="https://elsewhere/list")
    assert other is not None


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_another_host_is_asked_once_after_a_failure(server: PriceListServer, status: int) -> None:
    server.answers["/first"] = Answer(b"busy", status)
    server.answers["/second"] = Answer(b"x")
    urls = [f"{server.url}/{name}" for name in ("first", "second", "third")]
    found = Downloader().get(urls, KIB)
    assert found is not None
    assert found.url.endswith("/second")
    del server.answers["/second"]
    with pytest.raises(DownloadError) as caught:
        Downloader().get(urls, KIB)
    assert "/first answered" in caught.value.message
    assert "/second answered 404" in caught.value.message
    assert not [path for path in server.asked if path == "/third"]


def test_a_host_that_does_not_answer_is_named() -> None:
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:1/x"):
        Downloader().get(["http://127.0.0.1:1/x"], KIB)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "http:///x", "http://a:b/c"])
def test_only_web_addresses_are_read(url: str) -> None:
    with pytest.raises(DownloadError, match="not a web address"):
        Downloader().get([url], KIB)


def test_a_file_that_is_too_large_is_cut_off(server: PriceListServer) -> None:
    assert get(server, Answer(b"x" * KIB)) is not None
    assert "larger than 1,024 bytes" in refusal(server, Answer(b"x" * (KIB + 1)))


def test_a_gzip_bomb_is_cut_off(server: PriceListServer) -> None:
    bomb = gzip.compress(bytes(64 * 2**20))
    assert len(bomb) < 2**17
    response = Answer(bomb, headers={"Content-Encoding": "gzip"})
    assert "larger than" in refusal(server, response, max_bytes=2**20)


@pytest.mark.parametrize(
    "headers", [{"Content-Length": "1000"}, {"Content-Encoding": "gzip"}], ids=["plain", "gzip"]
)
def test_a_truncated_file_is_refused(server: PriceListServer, headers: dict[str, str]) -> None:
    body = gzip.compress(b"a,b\n" * 100)[:-20] if "Content-Encoding" in headers else b"a,b\n"

    def write(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    assert "ended early" in refusal(server, Answer(write=write))


def test_a_body_that_is_not_what_its_encoding_says_is_refused(server: PriceListServer) -> None:
    refusal(server, Answer(b"plain", headers={"Content-Encoding": "gzip"}))


def test_a_server_that_stalls_is_left(server: PriceListServer) -> None:
    limits = DownloadLimits(read_s=0.2)
    assert "timed out" in refusal(server, Answer(write=stall), limits=limits)


def test_a_server_that_never_ends_is_left(server: PriceListServer) -> None:
    limits = DownloadLimits(total_s=1.0)
    assert "longer than 1 s" in refusal(server, Answer(write=drip), 2**20, limits)


def test_a_redirect_on_the_same_host_is_followed(server: PriceListServer) -> None:
    server.answers["/moved"] = Answer(b"x")
    found = get(server, redirect("/moved"))
    assert found is not None
    assert found.body == b"x"
    assert found.url == f"{server.url}/list"


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "http://127.0.0.1:9/x",
        "http://localhost/x",
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/latest/meta-data/",
        "https://example.com/x",
        "ftp://127.0.0.1/x",
        "//[bad",
        "",
    ],
)
def test_a_redirect_elsewhere_is_not_followed(server: PriceListServer, target: str) -> None:
    message = refusal(server, redirect(target))
    assert "redirects" in message or "not a web address" in message


def test_a_redirect_loop_ends(server: PriceListServer) -> None:
    assert "redirects more than" in refusal(server, redirect("/list"))
    assert len(server.asked) == 4


def test_a_mirror_is_asked_alone(server: PriceListServer) -> None:
    server.answers["/mirror/example.com/a/b"] = Answer(b"x")
    mirrored = Downloader(USUAL, [f"{server.url}/mirror/"])
    found = mirrored.get(["https://example.com/a/b", "https://example.org/c"], KIB)
    assert found is not None
    assert server.asked == ["/mirror/example.com/a/b"]
    with pytest.raises(DownloadError):
        mirrored.get(["https://example.com/none", "https://example.com/a/b"], KIB)


def test_a_request_with_headers_follows_no_redirect(server: PriceListServer) -> None:
    server.answers["/list"] = redirect(f"{server.url}/elsewhere")
    with pytest.raises(DownloadError) as caught:
        Downloader(USUAL).fetch(f"{server.url}/list", KIB, {"auth-token": "very-secret"})
    assert caught.value.status == 302
    assert "very-secret" not in caught.value.message


@pytest.mark.parametrize(("header", "seconds"), [("120", 120.0), ("", None), ("soon", None)])
def test_what_a_server_asks_to_wait_is_in_the_error(
    server: PriceListServer, header: str, seconds: float | None
) -> None:
    server.answers["/list"] = Answer(status=429, headers={"Retry-After": header})
    with pytest.raises(DownloadError) as caught:
        Downloader(USUAL).fetch(f"{server.url}/list", KIB, {})
    assert (caught.value.status, caught.value.retry_after_s) == (429, seconds)
