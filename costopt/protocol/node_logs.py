"""What the trainers of one node print, in their job's store, in pieces that are never rewritten.

jobs/<job>/logs/<node>/<offset>.<attempt>.<until>

``offset`` is the byte of the whole at which the piece begins. The piece tells of the node's
trainers up to byte ``until`` of the log of ``attempt``, so that an agent that is started again
goes on where it was. Methods raise StoreError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from costopt.domain.ports import ObjectStore

TRAINER_LOGS = "trainer-*.log"
"""In the folder of a node's agent, one file for each attempt."""
MAX_SEGMENT_BYTES = 1 << 20
MAX_CONCURRENCY = 16
MAX_SEGMENTS = 1024
"""Read at once: of a trainer that prints a line now and then, thousands make up a little text."""
MAX_LISTED_KEYS = 100_000
NAME = re.compile(r"(\d{15})\.(\d{6,})\.(\d{15})")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How much is kept: ``offset`` bytes, told up to byte ``until`` of the log of ``attempt``."""

    offset: int = 0
    attempt: int = 0
    until: int = 0


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A part of a node's log; ask for what follows with ``after=next_byte``.

    ``ended``: so far nothing follows.
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
        """What is kept so far."""
        pieces = self._pieces(0)
        if not pieces:
            return LogPosition()
        last, key = pieces[-1]
        size_bytes = len(self._text(key))
        return LogPosition(last.offset + size_bytes, last.attempt, last.until)

    def append(self, end: LogPosition, data: bytes, attempt: int, until: int) -> LogPosition:
        """Add a piece of at most ``MAX_SEGMENT_BYTES`` behind ``end``; the new end."""
        name = f"{end.offset:015d}.{attempt:06d}.{until:015d}"
        self._store.put(self._prefix + name, data)
        return LogPosition(end.offset + len(data), attempt, until)

    def read(self, after: int, most_bytes: int) -> tuple[int, bytes]:
        """What is kept from byte ``after`` on, as much as is read at once, and where it begins:
        later, where the store has lost what stood before. Nothing where no more is kept."""
        pieces = self._pieces(max(0, after - MAX_SEGMENT_BYTES), MAX_LISTED_KEYS)
        before = [piece for piece in pieces if piece[0].offset <= after]
        behind = pieces[len(before) :]
        near = [piece for piece in behind if piece[0].offset < after + most_bytes]
        wanted = before[-1:] + (near[:MAX_SEGMENTS] or behind[:1])
        begin, data = after, b""
        for piece, text in self._texts(wanted):
            if piece.offset > begin + len(data):
                if data:
                    break
                begin = piece.offset
            data += text[begin + len(data) - piece.offset :]
            if len(data) >= most_bytes:
                break
        return begin, data[:most_bytes]

    def _texts(
        self, pieces: Sequence[tuple[LogPosition, str]]
    ) -> Iterator[tuple[LogPosition, bytes]]:
        """Never more of them in memory than are read at a time."""
        with ThreadPoolExecutor(MAX_CONCURRENCY, thread_name_prefix="log") as pool:
            for first in range(0, len(pieces), MAX_CONCURRENCY):
                some = pieces[first : first + MAX_CONCURRENCY]
                found = pool.map(self._text, [key for _, key in some])
                yield from ((piece, text) for (piece, _), text in zip(some, found, strict=True))

    def _text(self, key: str) -> bytes:
        return self._store.get(key, MAX_SEGMENT_BYTES) or b""

    def _pieces(self, from_offset: int, most: int | None = None) -> list[tuple[LogPosition, str]]:
        """Where each piece begins and up to where it tells, with its key, in order."""
        keys = self._store.keys(self._prefix, f"{self._prefix}{from_offset:015d}", most)
        named = ((NAME.fullmatch(key.removeprefix(self._prefix)), key) for key in keys)
        return [(LogPosition(*map(int, name.groups())), key) for name, key in named if name]
