"""Google Cloud Storage's XML API as far as an object store needs it, as a WSGI application.

Wire format: https://cloud.google.com/storage/docs/xml-api/reference-methods. Objects live in
memory; generations grow by one with every write to the bucket.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import md5
from http import HTTPStatus
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

PAGE = 3
"""Keys of one listing: small, so that every listing has pages."""


@dataclass
class Blob:
    """One generation of an object."""

    data: bytes
    generation: int
    metadata: Mapping[str, str]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """What a GET or HEAD tells beside the bytes."""
        return [
            ("ETag", f'"{md5(self.data).hexdigest()}"'),
            ("x-goog-generation", str(self.generation)),
            ("Last-Modified", formatdate(usegmt=True)),
            *self.metadata.items(),
        ]


@dataclass
class FakeGcs:
    """The application; ``buckets`` are those that exist."""

    buckets: tuple[str, ...]
    blobs: dict[tuple[str, str], Blob] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    generation: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: dict, start_response) -> Iterable[bytes]:  # type: ignore[no-untyped-def, type-arg]
        bucket, _, name = unquote(environ["PATH_INFO"]).lstrip("/").partition("/")
        query = {
            key: values[0]
            for key, values in parse_qs(environ["QUERY_STRING"], keep_blank_values=True).items()
        }
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = {
            key[5:].replace("_", "-").lower(): value
            for key, value in environ.items()
            if key.startswith("HTTP_")
        }
        with self.lock:
            status, answered, answer = self._answer(
                environ["REQUEST_METHOD"], bucket, name, query, headers, body
            )
        phrase = HTTPStatus(status).phrase
        start_response(f"{status} {phrase}", [*answered, ("Content-Length", str(len(answer)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer]

    def _answer(
        self,
        method: str,
        bucket: str,
        name: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        if bucket not in self.buckets:
            return _error(404, "NoSuchBucket")
        if "authorization" not in headers:
            return _error(401, "AuthenticationRequired")
        if not name:
            return 200, [], self._listing(bucket, query)
        if method == "PUT" and "uploadId" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return 200, [("ETag", f'"{md5(body).hexdigest()}"')], b""
        if method == "PUT":
            return self._put(bucket, name, headers, body)
        if method == "POST":
            return self._multipart(bucket, name, query, headers, body)
        found = self.blobs.get((bucket, name))
        if found is None:
            return _error(404, "NoSuchKey")
        if method == "DELETE":
            del self.blobs[bucket, name]
            return 204, [], b""
        if "range" in headers:
            return _range(found, headers["range"])
        return 200, found.headers, found.data

    def _put(
        self, bucket: str, name: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        wanted = headers.get("x-goog-if-generation-match")
        held = self.blobs.get((bucket, name))
        if wanted is not None and int(wanted) != (held.generation if held else 0):
            return _error(412, "PreconditionFailed")
        self.generation += 1
        metadata = {k: v for k, v in headers.items() if k.startswith("x-goog-meta-")}
        blob = self.blobs[bucket, name] = Blob(body, self.generation, metadata)
        return 200, blob.headers, b""

    def _multipart(
        self,
        bucket: str,
        name: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        if "uploads" in query:
            upload = f"upload-{len(self.uploads)}"
            self.uploads[upload] = {}
            return 200, [], _xml("InitiateMultipartUploadResult", UploadId=upload)
        parts = self.uploads.pop(query["uploadId"])
        named = [int(e.text or "") for e in ElementTree.fromstring(body).iter("PartNumber")]
        data = b"".join(parts[number] for number in named)
        status, answered, _ = self._put(bucket, name, headers, data)
        etag = dict(answered)["ETag"]
        return status, answered, _xml("CompleteMultipartUploadResult", ETag=etag)

    def _listing(self, bucket: str, query: Mapping[str, str]) -> bytes:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        names = sorted(n for b, n in self.blobs if b == bucket and n.startswith(prefix))
        rest = [name for name in names if name > after]
        page = rest[:PAGE]
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.blobs[bucket, name].data)}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
            for name in page
        )
        more = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
            if len(rest) > PAGE
            else ""
        )
        return f"<ListBucketResult>{contents}{more}</ListBucketResult>".encode()


def _range(found: Blob, asked: str) -> tuple[int, list[tuple[str, str]], bytes]:
    first, last = (int(end) for end in asked.removeprefix("bytes=").split("-"))
    if first >= len(found.data):
        return _error(416, "InvalidRange")
    data = found.data[first : last + 1]
    place = f"bytes {first}-{first + len(data) - 1}/{len(found.data)}"
    return 206, [*found.headers, ("Content-Range", place)], data


def _error(status: int, code: str) -> tuple[int, list[tuple[str, str]], bytes]:
    return status, [], _xml("Error", Code=code, Message=f"{code} in the fake")


def _xml(root: str, **fields: str) -> bytes:
    inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    return f"<?xml version='1.0' encoding='UTF-8'?><{root}>{inner}</{root}>".encode()
