"""How often the API was asked, with which result, and how long the answer took."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class HttpMetrics:
    """Safe to share between threads; counts are since this process began."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, float] = {}

    def count(self, operation: str, status: int, took_s: float) -> None:
        """One answer."""
        with self._lock:
            self._requests[operation, status] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + took_s

    def requests(self) -> dict[tuple[str, int], int]:
        """By (operation, HTTP status)."""
        with self._lock:
            return dict(self._requests)

    def seconds(self) -> dict[str, float]:
        """All answers' time together, by operation."""
        with self._lock:
            return dict(self._seconds)
