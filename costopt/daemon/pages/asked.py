"""What a browser asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

MAX_FILTER_LENGTH = 200
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """``name`` is what the path names, "" where it names nothing; ``words`` narrow the rows."""

    name: str = ""
    words: str = ""

    def wants(self, *texts: str) -> bool:
        """Whether each word stands in one of the texts, in any case."""
        held = " ".join(texts).casefold()
        return all(word in held for word in self.words.casefold().split())


def take_first(rows: Iterable[Row], most: int) -> tuple[tuple[Row, ...], int]:
    """The first rows, and how many are left out."""
    every = tuple(rows)
    return every[:most], max(0, len(every) - most)
