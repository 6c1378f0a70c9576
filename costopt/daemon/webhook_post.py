"""One POST to a receiver of alerts, over in a bounded time however slowly it is answered."""

from __future__ import annotations

import asyncio
import re
import ssl
from http.client import BadStatusLine, LineTooLong
from urllib.parse import SplitResult, urlsplit

WITHIN_S = 10.0
"""For all of it: connecting, TLS, sending and the answer's first line."""
MOST_LINE_BYTES = 4096
_STATUS_LINE = re.compile(rb"HTTP/1\.\d (\d{3})\b.*\n")


def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """The HTTP status; redirections are not followed. Raises OSError, HTTPException."""
    return asyncio.run(_posted(url, body, headers))


async def _posted(url: str, body: bytes, headers: dict[str, str]) -> int:
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (80 if tls is None else 443)
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(
            parts.hostname, port, ssl=tls, limit=MOST_LINE_BYTES
        )
        try:
            writer.write(_head(parts, len(body), headers) + body)
            return await _status(reader)
        finally:
            writer.transport.abort()


def _head(parts: SplitResult, body_bytes: int, headers: dict[str, str]) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {
        "Host": parts.netloc.rpartition("@")[2],
        "Connection": "close",
        "Content-Length": str(body_bytes),
        **headers,
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _status(reader: asyncio.StreamReader) -> int:
    try:
        line = await reader.readline()
    except ValueError:
        raise LineTooLong("status line") from None
    told = _STATUS_LINE.match(line)
    if told is None:
        raise BadStatusLine("of no web server")
    return int(told[1])
