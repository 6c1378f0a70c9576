"""Folds that a ledger keeps beside its events.

They save time only: all that they hold can be folded from the events again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class CachedFold:
    """What the events up to ``seq`` come to, in the form of the code with this digest."""

    seq: int
    code: str
    body: bytes


@runtime_checkable
class FoldCache(Protocol):
    """A ledger that keeps folds beside its events."""

    def folds(self, part: str, job: str | None = None) -> dict[str, CachedFold]:
        """What was kept of one job or of all, by job. Raises LedgerError."""
        ...
