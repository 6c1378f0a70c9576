"""What the test cloud answers with, in the API's own shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """One request. ``action`` is "collection.method" as the API's reference names it.

    What the query names many times is joined by blanks.
    """

    action: str
    method: str
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """What goes back over the wire."""

    content: object = field(default_factory=dict)
    status: int = 200
    page: bytes | None = None
    """What is sent in place of JSON."""

    @property
    def body(self) -> bytes:
        """As JSON, unless it is a page."""
        return self.page if self.page is not None else json.dumps(self.content).encode()


Answer = Callable[[Call], Reply]


class RefusedError(Exception):
    """The answer is an error: HTTP status, reason and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.reply = Reply(
            {
                "error": {
                    "code": status,
                    "message": message,
                    "errors": [{"message": message, "domain": "global", "reason": reason}],
                }
            },
            status,
        )


def missing(kind: str, name: str) -> RefusedError:
    """404, as Compute Engine words it."""
    return RefusedError(404, "notFound", f"The resource 'projects/p/{kind}/{name}' was not found")
