"""One request to the test cloud, and the reply to it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode


@dataclass(frozen=True)
class Reply:
    """What goes back over the wire."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body, read as UTF-8."""
        return self.body.decode()

    @classmethod
    def xml(cls, text: str, status: int = 200) -> Reply:
        """An answer in the query protocol (EC2, STS, IAM)."""
        return cls(status, text.encode(), {"Content-Type": "text/xml;charset=UTF-8"})

    @classmethod
    def json(cls, content: object, status: int = 200) -> Reply:
        """An answer in the JSON protocol (SQS, Pricing, Service Quotas, SSM)."""
        headers = {"Content-Type": "application/x-amz-json-1.1"}
        return cls(status, json.dumps(content).encode(), headers)


@dataclass(frozen=True)
class Call:
    """One request, with who is asked and what for, as its signature and body say.

    ``action`` is the query protocol's Action or the last part of X-Amz-Target, and "METHOD" for a
    request to S3 or to a plain page. ``params`` are those of the query protocol, ``content`` the
    object of the JSON protocol.
    """

    service: str
    region: str
    action: str
    method: str
    path: str
    params: Mapping[str, str]
    content: Mapping[str, Any]
    body: bytes
    environ: Mapping[str, Any]

    @classmethod
    def read(cls, environ: Mapping[str, Any]) -> Call:
        """The request of a WSGI environment, whose body is read."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        service, region = _signed_for(environ.get("HTTP_AUTHORIZATION", ""))
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        params: dict[str, str] = {}
        content: dict[str, Any] = {}
        if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            params = dict(parse_qsl(body.decode(), keep_blank_values=True))
        elif target and body:
            content = json.loads(body)
        return cls(
            service=service,
            region=region,
            action=params.get("Action") or target.rpartition(".")[2] or environ["REQUEST_METHOD"],
            method=environ["REQUEST_METHOD"],
            path=environ.get("PATH_INFO", "/"),
            params=params,
            content=content,
            body=body,
            environ=environ,
        )

    def with_params(self, **changes: str) -> Call:
        """The same request in the query protocol with these parameters set."""
        params = {**self.params, **changes}
        return replace(self, params=params, body=urlencode(params).encode())

    def numbered(self, prefix: str) -> list[str]:
        """The values of ``prefix.1``, ``prefix.2`` …, in order."""
        values: list[str] = []
        while (value := self.params.get(f"{prefix}.{len(values) + 1}")) is not None:
            values.append(value)
        return values

    def as_environ(self) -> dict[str, Any]:
        """A WSGI environment that carries this request."""
        return {
            **self.environ,
            "wsgi.input": io.BytesIO(self.body),
            "CONTENT_LENGTH": str(len(self.body)),
        }


Forward = Callable[[Call], Reply]
"""Hands a request on to moto."""

Answer = Callable[[Call, Forward], Reply]
"""Answers a request itself, or hands it on, as it is or changed."""


def _signed_for(authorization: str) -> tuple[str, str]:
    """(service, region) of a version 4 signature; empty where the request is not signed."""
    scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
    return (scope[3], scope[2]) if len(scope) == 5 else ("", "")
