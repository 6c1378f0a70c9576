"""Small documents that know when they are damaged: a line of SHA-256, then a line of JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def encode_with_digest(fields: Mapping[str, Any]) -> bytes:
    """The document; the same fields give the same bytes."""
    body = json.dumps(fields, sort_keys=True).encode()
    return _digest(body) + b"\n" + body + b"\n"


def decode_with_digest(data: bytes, what: str) -> dict[str, Any]:
    """The fields. Raises ValueError, naming ``what``, where a bit differs or a byte is missing."""
    checksum, _, body = data.partition(b"\n")
    if body[-1:] != b"\n" or _digest(body[:-1]) != checksum:
        raise ValueError(f"the {what} does not match its own checksum")
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError(f"the {what} is no JSON object")
    return fields


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
