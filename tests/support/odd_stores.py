"""S3 services that are not quite S3: moto behind a front that does one thing wrong."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import boto3

from tests.support.object_stores import Wsgi, moto_application, refusal, served

STALE_S = 1.0


class Oddity(StrEnum):
    """What the service does wrong."""

    NOTHING = "nothing"
    NO_CONDITIONS = "no conditions"
    NO_IF_MATCH = "no If-Match"
    NO_IF_NONE_MATCH = "no If-None-Match"
    UNQUOTED_TAGS = "unquoted tags"
    REFUSES_ALL = "412 to all"
    LOSES_WRITES = "loses a write"
    STALE_READS = "stale for a second"


IGNORED = {
    Oddity.NO_CONDITIONS: (
        *("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"),
        "HTTP_X_GOOG_IF_GENERATION_MATCH",
    ),
    Oddity.NO_IF_MATCH: ("HTTP_IF_MATCH",),
    Oddity.NO_IF_NONE_MATCH: ("HTTP_IF_NONE_MATCH",),
}


@dataclass
class OddStore:
    """A WSGI application. A write whose path ends in ``lost`` is answered and not stored, once;
    without ``lost`` each is where the service loses writes."""

    inner: Wsgi
    oddity: Oddity = Oddity.NOTHING
    lost: str = ""
    _old: dict[str, tuple[float, str, list[tuple[str, str]], bytes]] = field(default_factory=dict)

    def __call__(self, environ: dict, start_response) -> Iterable[bytes]:  # type: ignore[no-untyped-def, type-arg]
        for header in IGNORED.get(self.oddity, ()):
            environ.pop(header, None)
        method, tag = environ["REQUEST_METHOD"], environ.get("HTTP_IF_MATCH")
        is_conditional = tag is not None or "HTTP_IF_NONE_MATCH" in environ
        if method == "PUT" and self._is_refused(tag, is_conditional=is_conditional):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return refusal(start_response, 412, "PreconditionFailed", "refused")
        if tag is not None and self.oddity is Oddity.UNQUOTED_TAGS:
            environ["HTTP_IF_MATCH"] = f'"{tag}"'
        if method == "PUT" and self._is_lost(environ["PATH_INFO"]):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("200 OK", [("ETag", '"lost"'), ("Content-Length", "0")])
            return []
        if self.oddity is Oddity.STALE_READS and method in ("PUT", "GET"):
            return self._stale(environ, start_response)
        return self.inner(environ, start_response)

    def _is_refused(self, tag: str | None, *, is_conditional: bool) -> bool:
        if self.oddity is Oddity.REFUSES_ALL:
            return is_conditional
        return self.oddity is Oddity.UNQUOTED_TAGS and (tag or "").startswith('"')

    def _is_lost(self, path: str) -> bool:
        if self.oddity is not Oddity.LOSES_WRITES or not path.endswith(self.lost):
            return False
        if self.lost:
            self.oddity = Oddity.NOTHING
        return True

    def _stale(self, environ: dict, start_response) -> Iterable[bytes]:  # type: ignore[no-untyped-def, type-arg]
        """Remember what an object was before it is written, and answer with that for a while."""
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "GET":
            until, status, headers, body = self._old.get(path, (0.0, "", [], b""))
            if time.monotonic() < until:
                start_response(status, headers)
                return [body]
            return self.inner(environ, start_response)
        before: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(
            self.inner(
                {k: v for k, v in environ.items() if k not in IGNORED[Oddity.NO_CONDITIONS]}
                | {"REQUEST_METHOD": "GET", "CONTENT_LENGTH": "0"},
                lambda status, headers, *_: before.append((status, headers)),
            )
        )
        self._old[path] = (time.monotonic() + STALE_S, *before[0], body)
        return self.inner(environ, start_response)


@contextmanager
def served_odd_store(*buckets: str) -> Iterator[tuple[str, OddStore]]:
    """The service with these buckets; gives its URL and what it does wrong, nothing at first."""
    front = OddStore(moto_application())
    with served(front) as url:
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        for bucket in buckets:
            client.create_bucket(Bucket=bucket)
        client.close()
        yield url, front
