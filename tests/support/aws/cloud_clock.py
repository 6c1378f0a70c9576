"""The time of the test cloud: the wall's, or one that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Due = tuple[datetime, Callable[[], None]]


class CloudClock:
    """A Clock. Once it ``stands``, it moves only when somebody sleeps, and does what falls due."""

    def __init__(self) -> None:
        self._standing: datetime | None = None
        self._due: list[Due] = []

    def now(self) -> datetime:
        """The present, aware UTC."""
        return self._standing or datetime.now(UTC)

    def naive_now(self) -> datetime:
        """The present in UTC without saying so, as moto wants it."""
        return self.now().replace(tzinfo=None)

    def sleep(self, seconds: float) -> None:
        """Jump ahead."""
        self.stand()
        assert self._standing is not None
        until = self._standing + timedelta(seconds=seconds)
        for at, act in sorted((d for d in self._due if d[0] <= until), key=lambda due: due[0]):
            self._standing = max(at, self._standing)
            act()
        self._due = [due for due in self._due if due[0] > until]
        self._standing = until

    def stand(self) -> datetime:
        """Stop at a whole second, which is as exactly as EC2 tells times."""
        self._standing = self._standing or datetime.now(UTC).replace(microsecond=0)
        return self._standing

    def at(self, when: datetime, act: Callable[[], None]) -> None:
        """Do something once the clock passes ``when``."""
        self._due.append((when, act))

    def reset(self) -> None:
        """The wall's time again."""
        self._standing = None
        self._due.clear()
