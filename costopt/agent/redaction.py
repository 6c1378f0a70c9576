"""Secrets hidden in what a node writes: its trainers' logs, and every message to the store.

A value is found as it stands, line by line, and as JSON, URLs and base64 write it. A program that
prints it in another form, or into a checkpoint, is not stopped.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from costopt.domain.object_store import ObjectStore
from costopt.domain.secret import MIN_LENGTH

MASK = b"***"
PIECE_BYTES = 1 << 16
DRAIN_TIMEOUT_S = 2.0


class Redactor:
    """Hides the values that it was given; without any it changes nothing."""

    def __init__(self) -> None:
        self._forms: tuple[bytes, ...] = ()
        self._pattern: re.Pattern[bytes] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to hide."""
        return self._pattern is None

    def hide(self, values: Iterable[str]) -> None:
        """Hide these values from now on, too."""
        forms = {form for value in values for form in _forms(value)}
        self._forms = tuple(sorted(forms.union(self._forms), key=len, reverse=True))
        if self._forms:
            self._pattern = re.compile(b"|".join(map(re.escape, self._forms)))

    def redact(self, data: bytes) -> bytes:
        """Return the bytes with every value replaced."""
        return data if self._pattern is None else self._pattern.sub(MASK, data)

    def text(self, text: str) -> str:
        """Return the text with every value replaced."""
        return self.redact(text.encode(errors="replace")).decode(errors="replace")

    def held_bytes(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a value."""
        longest = max(map(len, self._forms), default=1) - 1
        for begin in range(max(0, len(data) - longest), len(data)):
            if any(form.startswith(data[begin:]) for form in self._forms):
                return len(data) - begin
        return 0


def _forms(value: str) -> Iterable[bytes]:
    for part in (value, *value.splitlines()):
        if len(part.strip()) >= MIN_LENGTH:
            plain = part.encode()
            yield plain
            yield json.dumps(part)[1:-1].encode()
            yield quote(part, safe="").encode()
            yield base64.b64encode(plain).rstrip(b"=")


class RedactedLog:
    """A pipe whose end ``target`` a command writes to, and whose text goes to a file, redacted."""

    def __init__(self, redactor: Redactor, path: Path) -> None:
        self._redactor = redactor
        source, target = os.pipe()
        self.target: BinaryIO = os.fdopen(target, "wb", buffering=0)
        self._thread = threading.Thread(
            target=self._copy, args=(source, path), name="log", daemon=True
        )
        self._thread.start()

    def drain(self) -> None:
        """Wait a little until what was written has reached the file."""
        self._thread.join(DRAIN_TIMEOUT_S)

    def _copy(self, source: int, path: Path) -> None:
        pending = b""
        with os.fdopen(source, "rb", buffering=0) as pipe, path.open("ab", buffering=0) as log:
            while piece := pipe.read(PIECE_BYTES):
                pending = self._redactor.redact(pending + piece)
                ready = len(pending) - self._redactor.held_bytes(pending)
                log.write(pending[:ready])
                pending = pending[ready:]
            log.write(pending)


class RedactedStore:
    """An object store to which small objects are written redacted. Raises StoreError."""

    def __init__(self, store: ObjectStore, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor
        self.get = store.get
        self.get_range = store.get_range
        self.get_tagged = store.get_tagged
        self.put_file = store.put_file
        self.get_file = store.get_file
        self.keys = store.keys
        self.delete = store.delete

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        self._store.put(key, self._redactor.redact(data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists, and return whether it was written."""
        return self._store.put_if_absent(key, self._redactor.redact(data))

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds the object that ``tag`` is of; return whether it did."""
        return self._store.replace(key, self._redactor.redact(data), tag)
