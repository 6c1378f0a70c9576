"""Downloads with limits: on time, on size before and after decompression, and on redirects.

Headers of a request, which may hold a key, are in no error message, and are sent to no address that
a redirect names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Timer
from urllib.parse import SplitResult, urljoin, urlsplit

from costopt import __version__
from costopt.domain.errors import DownloadError
from costopt.web_connection import connect_to, cut, web_target

Connect = Callable[[str, str, int | None, float], HTTPConnection]
"""Makes a connection of a scheme, host, port and seconds to connect, which is not open yet."""

MAX_REDIRECTS = 3
CHUNK_BYTES = 1 << 16
REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Seconds to connect, for each read, and for a whole file with its redirects."""

    connect_s: float = 3.0
    read_s: float = 10.0
    total_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Download:
    """A file: ``body`` is uncompressed, ``url`` is where it was asked for, not redirected to."""

    url: str
    body: bytes
    etag: str = ""
    last_modified: datetime | None = None

    @property
    def sha256(self) -> str:
        """Return the checksum of the body."""
        return sha256(self.body).hexdigest()


class Downloader:
    """Reads files over HTTP. With ``mirrors`` it asks these alone.

    A mirror holds the file of https://HOST/PATH at MIRROR/HOST/PATH. Redirects are followed to
    https and to hosts of the file's own addresses only, so that a list cannot lead to another
    machine; a host that is configured with http may redirect to itself. ``connect`` makes the
    connections in place of those to public servers: no proxy is asked.
    """

    def __init__(
        self,
        limits: DownloadLimits = DownloadLimits(),
        mirrors: Sequence[str] = (),
        connect: Connect | None = None,
    ) -> None:
        self._limits = limits
        self._connect = connect
        self._mirrors = tuple(mirror.rstrip("/") for mirror in mirrors)

    def fetch(self, url: str, max_bytes: int, headers: Mapping[str, str]) -> Download:
        """Return the answer to one request with these headers. Raise DownloadError.

        No redirect is followed, and no mirror asked: the headers are for this address.
        """
        with _deadline(self._limits.total_s) as deadline, self._open(url, headers, deadline) as got:
            found = _read(url, got, max_bytes, etag="")
        assert found is not None
        return found

    def get(
        self, urls: Sequence[str], max_bytes: int, etag: str = "", etag_url: str = ""
    ) -> Download | None:
        """Return the file at the first of the addresses, None if its ETag is still ``etag``.

        After any failure the second address is asked once. Raise DownloadError.
        """
        places = self._places(urls)[:2]
        failures: list[str] = []
        for place in places:
            try:
                known = etag if place == etag_url else ""
                return self._follow(place, places, max_bytes, known)
            except DownloadError as error:
                failures.append(error.message)
        raise DownloadError("; ".join(failures))

    def _places(self, urls: Sequence[str]) -> list[str]:
        if not self._mirrors:
            return list(urls)
        parts = urlsplit(urls[0])
        return [f"{mirror}/{parts.netloc}{parts.path}" for mirror in self._mirrors]

    def _follow(
        self, url: str, places: Sequence[str], max_bytes: int, etag: str
    ) -> Download | None:
        allowed = [urlsplit(place) for place in places]
        headers = {"If-None-Match": etag} if etag else {}
        target = url
        with _deadline(self._limits.total_s) as deadline:
            for _ in range(MAX_REDIRECTS + 1):
                with self._open(target, headers, deadline) as response:
                    if response.status not in REDIRECTS:
                        return _read(url, response, max_bytes, etag)
                    location = response.headers.get("Location", "")
                target = _checked_redirect(target, location, allowed)
        raise DownloadError(f"{url} redirects more than {MAX_REDIRECTS} times")

    @contextmanager
    def _open(
        self, url: str, more: Mapping[str, str], deadline: _Deadline
    ) -> Iterator[HTTPResponse]:
        headers = {"User-Agent": f"costopt/{__version__}", "Accept-Encoding": "gzip", **more}
        try:
            connection, target = _connection(
                urlsplit(url), self._limits.connect_s, headers, self._connect
            )
        except ValueError as error:
            raise DownloadError(f"{url} is not a web address: {error}") from None
        try:
            deadline.watch(connection)
            connection.connect()
            deadline.watch(connection)  # which could not be cut while it was opened
            connection.sock.settimeout(self._limits.read_s)
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as response:
                yield response
        except (OSError, HTTPException, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            why = deadline.why or reason.lower()
            raise DownloadError(f"{url} cannot be read: {why}") from error
        finally:
            connection.close()
        if deadline.why:
            raise DownloadError(f"{url} cannot be read: {deadline.why}")


class _Deadline:
    """Cuts the connections that it watches when the time is over; ``why`` says so afterwards."""

    def __init__(self) -> None:
        self.why = ""
        self._connection: HTTPConnection | None = None

    def watch(self, connection: HTTPConnection) -> None:
        self._connection = connection
        if self.why:
            raise TimeoutError(self.why)

    def cut(self, total_s: float) -> None:
        self.why = f"it took longer than {total_s:g} s"
        if self._connection is not None:
            cut(self._connection)


@contextmanager
def _deadline(total_s: float) -> Iterator[_Deadline]:
    deadline = _Deadline()
    timer = Timer(total_s, deadline.cut, (total_s,))
    timer.daemon = True
    timer.start()
    try:
        yield deadline
    finally:
        timer.cancel()


def _connection(
    parts: SplitResult, connect_s: float, headers: dict[str, str], connect: Connect | None
) -> tuple[HTTPConnection, str]:
    """Return a connection and what to request of it. Raise ValueError."""
    if connect is None:
        return connect_to(parts, connect_s, headers)
    target = web_target(parts)
    return connect(parts.scheme, parts.hostname or "", parts.port, connect_s), target


def _checked_redirect(url: str, location: str, allowed: Sequence[SplitResult]) -> str:
    """Return where ``location`` leads from ``url`` if a file of these addresses may redirect there.

    Raise DownloadError.
    """
    target = location
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        secure = parts.scheme == "https" and parts.hostname in {each.hostname for each in allowed}
        same = any(parts[:2] == each[:2] for each in allowed)
    except ValueError:
        secure = same = False
    if not (secure or same):
        raise DownloadError(f"{url} redirects to {target[:200]!r}, which is not followed")
    return target


def _read(url: str, response: HTTPResponse, max_bytes: int, etag: str) -> Download | None:
    if response.status == HTTPStatus.NOT_MODIFIED and etag:
        return None
    if response.status != HTTPStatus.OK:
        raise DownloadError(
            f"{url} answered {response.status} {response.reason}",
            status=response.status,
            retry_after_s=_retry_after_s(response.headers.get("Retry-After", "")),
        )
    return Download(
        url=url,
        body=_body(url, response, max_bytes),
        etag=response.headers.get("ETag", ""),
        last_modified=_date(response.headers.get("Last-Modified", "")),
    )


def _body(url: str, response: HTTPResponse, max_bytes: int) -> bytes:
    """Return the uncompressed body. Raise DownloadError if it is too large or incomplete."""
    inflate = zlib.decompressobj(31) if response.headers.get("Content-Encoding") == "gzip" else None
    body = bytearray()
    while chunk := response.read(CHUNK_BYTES):
        body += inflate.decompress(chunk, max_bytes + 1 - len(body)) if inflate else chunk
        if len(body) > max_bytes:
            raise DownloadError(f"{url} is larger than {max_bytes:,} bytes")
    if response.length or (inflate is not None and not inflate.eof):
        raise DownloadError(f"{url} ended early, after {len(body):,} bytes")
    return bytes(body)


def _retry_after_s(text: str) -> float | None:
    """Return the seconds that a Retry-After of seconds or a date asks for, None for another."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    at = _date(text)
    return None if at is None else max(0.0, (at - datetime.now(UTC)).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC) if text else None
    except (ValueError, OverflowError):
        return None
