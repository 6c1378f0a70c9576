"""One request to a cloud's metadata service, which is a link-local HTTP server without TLS."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_ANSWER_BYTES = 65_536


class MetadataError(Exception):
    """The service did not answer, or not in HTTP; the message says how."""


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """An HTTP answer, whatever its status; header names are in lower case."""

    status: int
    text: str
    headers: Mapping[str, str]


def get_metadata(
    endpoint: str,
    path: str,
    headers: Mapping[str, str],
    *,
    method: str = "GET",
    timeout_s: float,
) -> MetadataResponse:
    """One request on a connection of its own. Raises MetadataError.

    No proxy is used, whatever the environment says: a proxy would answer for another machine.
    """
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=timeout_s
    )
    try:
        connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
        answer = connection.getresponse()
        text = answer.read(MAX_ANSWER_BYTES).decode(errors="replace")
        told = {name.lower(): value for name, value in answer.getheaders()}
        return MetadataResponse(answer.status, text, told)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MetadataError(f"{endpoint}{path}: {error or type(error).__name__}") from error
    finally:
        connection.close()
