"""What the trainers of one node print, in their job's store, in pieces that are never rewritten.

jobs/<job>/logs/<node>/<offset>.<attempt>.<until>

``offset`` is the byte of the whole at which the piece begins. The piece covers the log of
``attempt`` up to byte ``until``, so that a restarted agent continues from there. Methods raise
StoreError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from costopt.domain.object_store import ObjectStore

TRAINER_LOGS = "trainer-*.log"
"""The files in the folder of a node's agent, one for each attempt."""
MAX_SEGMENT_BYTES = 1 << 20
MAX_CONCURRENCY = 16
MAX_SEGMENTS = 1024
"""Read at once: a trainer that prints only now and then leaves thousands of short pieces."""
MAX_LISTED_KEYS = 100_000
NAME = re.compile(r"(\d{15})\.(\d{6,})\.(\d{15})")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The end of a stored log: ``offset`` bytes, up to byte ``until`` of the log of ``attempt``."""

    offset: int = 0
    attempt: int = 0
    until: int = 0


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A part of a node's log; request what follows with ``after=next_byte``.

    ``ended``: nothing follows so far.
    """

    job: str
    node_id: str
    text: str
    next_byte: int
    ended: bool


class NodeLog:
    """The log of one node of one job."""

    def __init__(self, store: ObjectStore, job: str, node_id: str) -> None:
        self._store = store
        self._prefix = f"jobs/{job}/logs/{node_id}/"

    def end(self) -> LogPosition:
        """Return the end of what is stored so far."""
        pieces = self._pieces(0)
        if not pieces:
            return LogPosition()
        last, key = pieces[-1]
        size_bytes = len(self._text(key))
        return LogPosition(last.offset + size_bytes, last.attempt, last.until)

    def append(self, end: LogPosition, data: bytes, attempt: int, until: int) -> LogPosition:
        """Add a piece of at most ``MAX_SEGMENT_BYTES`` behind ``end``; return the new end."""
        name = f"{end.offset:015d}.{attempt:06d}.{until:015d}"
        self._store.put(self._prefix + name, data)
        return LogPosition(end.offset + len(data), attempt, until)

    def read(self, after: int, max_bytes: int) -> tuple[int, bytes]:
        """Return where the text begins and the text from byte ``after`` on, as far as one read
        goes.

        It begins later than ``after`` if the store has lost what came before, and is empty if
        nothing more is stored.
        """
        pieces = self._pieces(max(0, after - MAX_SEGMENT_BYTES), MAX_LISTED_KEYS)
        before = [piece for piece in pieces if piece[0].offset <= after]
        behind = pieces[len(before) :]
        near = [piece for piece in behind if piece[0].offset < after + max_bytes]
        wanted = before[-1:] + (near[:MAX_SEGMENTS] or behind[:1])
        begin, data = after, b""
        for piece, text in self._texts(wanted):
            if piece.offset > begin + len(data):
                if data:
                    break
                begin = piece.offset
            data += text[begin + len(data) - piece.offset :]
            if len(data) >= max_bytes:
                break
        return begin, data[:max_bytes]

    def _texts(
        self, pieces: Sequence[tuple[LogPosition, str]]
    ) -> Iterator[tuple[LogPosition, bytes]]:
        """Holds no more pieces in memory than are read at a time."""
        with ThreadPoolExecutor(MAX_CONCURRENCY, thread_name_prefix="log") as pool:
            for first in range(0, len(pieces), MAX_CONCURRENCY):
                some = pieces[first : first + MAX_CONCURRENCY]
                found = pool.map(self._text, [key for _, key in some])
                yield from ((piece, text) for (piece, _), text in zip(some, found, strict=True))

    def _text(self, key: str) -> bytes:
        return self._store.get(key, MAX_SEGMENT_BYTES) or b""

    def _pieces(self, from_offset: int, most: int | None = None) -> list[tuple[LogPosition, str]]:
        """Return each piece's key and where it begins and what it covers, in order."""
        keys = self._store.keys(self._prefix, f"{self._prefix}{from_offset:015d}", most)
        named = ((NAME.fullmatch(key.removeprefix(self._prefix)), key) for key in keys)
        return [(LogPosition(*map(int, name.groups())), key) for name, key in named if name]
