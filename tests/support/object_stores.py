"""Buckets on this machine: S3 by moto and Google Cloud Storage by a fake, over real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.support.fake_gcs import FakeGcs

Wsgi = Callable[..., Iterable[bytes]]
CONDITIONS = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}


@dataclass
class Unreliable:
    """A WSGI application that answers as told instead of as it should."""

    inner: Wsgi
    refusals: list[tuple[int, str, str]] = field(default_factory=list)
    lost_replies: int = 0
    asked: int = 0

    def refuse(self, status: int, code: str, times: int = 1, message: str = "refused") -> None:
        """Answer the next ``times`` requests with an error of the S3 kind."""
        self.refusals += [(status, code, message)] * times

    def __call__(self, environ: dict, start_response) -> Iterable[bytes]:  # type: ignore[no-untyped-def, type-arg]
        self.asked += 1
        if self.refusals:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return refusal(start_response, *self.refusals.pop(0))
        if self.lost_replies:
            self.lost_replies -= 1
            list(self.inner(environ, lambda *_: None))
            return refusal(start_response, 503, "ServiceUnavailable", "reply lost")
        return self.inner(environ, start_response)


def refusal(start_response, status: int, code: str, message: str) -> list[bytes]:  # type: ignore[no-untyped-def]
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start_response(f"{status} {HTTPStatus(status).phrase}", headers)
    return [body]


@contextmanager
def served(application: Wsgi) -> Iterator[str]:
    """Serve on a free port of this machine; gives the URL."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def moto_application() -> Wsgi:
    """moto, but that a write with a condition is one step, as in S3: moto checks, then writes."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    moto: Wsgi = DomainDispatcherApplication(create_backend_app)
    writing = threading.Lock()

    def answer(environ: dict, start_response) -> Iterable[bytes]:  # type: ignore[no-untyped-def, type-arg]
        if environ["REQUEST_METHOD"] in ("GET", "HEAD") or not CONDITIONS & environ.keys():
            return moto(environ, start_response)
        with writing:
            return moto(environ, start_response)

    return answer


@contextmanager
def served_s3(*buckets: str) -> Iterator[tuple[str, Unreliable]]:
    """moto's S3 with these buckets; gives the URL and the front that can refuse."""
    import boto3

    front = Unreliable(moto_application())
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


@contextmanager
def served_gcs(*buckets: str) -> Iterator[tuple[str, Unreliable]]:
    """The fake Google Cloud Storage with these buckets; gives the URL and its front."""
    front = Unreliable(FakeGcs(buckets))
    with served(front) as url:
        yield url, front
